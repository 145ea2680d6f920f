"""How many records there are, and which: a count and an order-free checksum that add up over parts.

A record's identity is 64 bits of a hash of its timestamp, key and value. A tally has 16 buckets, chosen by the
identity's first four bits; each has a count and the sum of its identities modulo 2^64. Tallies of parts add up to the
tally of the whole, in any order, so that producers, tasks and batches count on their own.

Two tallies of the same records are equal. Where one lacks a record, or has another twice, at least a sum differs, also
where the counts agree. What stays unseen: headers are not looked at; of records that are alike to the byte and the
millisecond one may stand for the other; and differences whose sums cancel out, by a chance of 1 in 2^64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

BUCKETS = 16
BUCKET_SHIFT = 60
MODULUS = 1 << 64
_SIGN = 1 << 63
_HEAD = struct.Struct(">qqq")
NONE_LENGTH = -1
"""A missing key or value is not an empty one."""


def identity(timestamp_ms: int, key: bytes | None, value: bytes | None) -> int:
    return int.from_bytes(digest(timestamp_ms, key, value), "little")


def digest(timestamp_ms: int, key: bytes | None, value: bytes | None) -> bytes:
    """The identity as eight bytes, the lowest first."""
    head = _HEAD.pack(
        timestamp_ms,
        NONE_LENGTH if key is None else len(key),
        NONE_LENGTH if value is None else len(value),
    )
    return blake2b(head + (key or b"") + (value or b""), digest_size=8).digest()


def window_of(timestamp_ms: int, window_ms: int) -> int:
    """The begin of the window that a time lies in."""
    return timestamp_ms - timestamp_ms % window_ms


class Difference(NamedTuple):
    """At least so many records are missing, and so many are there beyond the expected ones."""

    missing: int
    surplus: int


@dataclass(slots=True)
class Tally:
    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    sums: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, identity_: int) -> None:
        bucket = identity_ >> BUCKET_SHIFT
        self.counts[bucket] += 1
        self.sums[bucket] = (self.sums[bucket] + identity_) % MODULUS

    def merge(self, other: Tally) -> None:
        for bucket in range(BUCKETS):
            self.counts[bucket] += other.counts[bucket]
            self.sums[bucket] = (self.sums[bucket] + other.sums[bucket]) % MODULUS

    @property
    def signed_sums(self) -> list[int]:
        """For tables and JSON, which know no unsigned numbers of 64 bits."""
        return [one - MODULUS if one >= _SIGN else one for one in self.sums]

    @classmethod
    def of(cls, counts: Sequence[int], signed_sums: Iterable[int]) -> Tally:
        tally = cls(list(counts), [one % MODULUS for one in signed_sums])
        if len(tally.counts) != BUCKETS or len(tally.sums) != BUCKETS:
            raise ValueError(f"a tally has {BUCKETS} buckets")
        return tally


def difference(expected: Tally, found: Tally) -> Difference:
    """A loss and a doubling in one bucket hide each other but for one of each; the bucket is named all the same."""
    missing = surplus = 0
    for bucket in range(BUCKETS):
        more = found.counts[bucket] - expected.counts[bucket]
        missing += max(0, -more)
        surplus += max(0, more)
        if more == 0 and found.sums[bucket] != expected.sums[bucket]:
            missing += 1
            surplus += 1
    return Difference(missing, surplus)
