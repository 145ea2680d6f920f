"""Batches of records that are small on the wire and large when unfolded, and batches that lie.

All have a right checksum. They are made from repeated bytes, so that 15 million records take no time to make.
"""

from __future__ import annotations

import functools
import time

from moldau.records import varint
from moldau.records.batch import BatchHeader
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, assemble, encode_records

TINY_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
"""Seven bytes: no key, no value, no headers, the first offset and time."""
FUTURE_MS = 10 * 365 * 86_400_000
COUNT_MAX = 2**31 - 1
ZSTD_LEVEL = 19  # folds zeros tighter than the default does


def now_ms() -> int:
    return int(time.time() * 1000)


def claimed_batch(folded: bytes, codec: Codec, count: int, *, later_ms: int = 0) -> bytes:
    """A batch whose header says what it is told to say."""
    timestamp = now_ms() + later_ms
    header = BatchHeader(0, 0, -1, 2, 0, int(codec), count - 1, timestamp, timestamp, -1, -1, -1, count)
    return assemble(header, folded)


@functools.cache
def folded_zeros(codec: Codec, unfolded_bytes: int) -> bytes:
    """One record with a key and a value of zeros, compressed."""
    inner = b"\x00\x00\x00\x02k" + varint.encode(unfolded_bytes) + bytes(unfolded_bytes) + b"\x00"
    return compress(codec, varint.encode(len(inner)) + inner, ZSTD_LEVEL if codec is Codec.ZSTD else 9)


@functools.cache
def folded_tiny(codec: Codec, count: int) -> bytes:
    return compress(codec, TINY_RECORD * count, ZSTD_LEVEL if codec is Codec.ZSTD else 9)


def bomb(codec: Codec, unfolded_bytes: int = 100_000_000, *, later_ms: int = 0) -> bytes:
    """One record of 100 MB in a few KB."""
    return claimed_batch(folded_zeros(codec, unfolded_bytes), codec, 1, later_ms=later_ms)


def tiny_records(codec: Codec, count: int, *, later_ms: int = 0) -> bytes:
    """Many records of seven bytes each, all with the same offset delta."""
    return claimed_batch(folded_tiny(codec, count), codec, count, later_ms=later_ms)


@functools.cache
def long_valid_batch(count: int, codec: Codec = Codec.ZSTD) -> bytes:
    """A batch of many records as a client could send it; only the last one has a later time."""
    timestamp = now_ms()
    records = bytearray()
    for number in range(count - 1):
        inner = b"\x00\x00" + varint.encode(number) + b"\x01\x01\x00"
        records += varint.encode(len(inner))
        records += inner
    records += encode_records([Record(count - 1, timestamp + 1, None, None)], 0, timestamp)
    folded = compress(codec, records, None)
    header = BatchHeader(0, 0, -1, 2, 0, int(codec), count - 1, timestamp, timestamp + 1, -1, -1, -1, count)
    return assemble(header, folded)
