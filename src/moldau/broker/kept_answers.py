"""Metadata answers as they are sent, kept until the cluster changes: many clients ask the same.

An answer belongs to a version of the cluster image, and to everything else that went into it (the `shape`): the
request, its version, the listener, the addresses that the client is told. So one that is found is the one that would be
made. There is room for METADATA_KEPT_BYTES_MAX in all; those that were kept first make room, and a new version of
the image makes all of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from struct import Struct
from typing import NamedTuple

from moldau.base.limits import METADATA_ANSWERS_KEPT_MAX, METADATA_KEPT_BYTES_MAX
from moldau.runtime.line import Slices

_PIECE_BYTES = 64 * 1024
_INT32 = Struct(">i")


class Packed(NamedTuple):
    """The body of an answer in its version, packed already: a handler may return it instead of a message."""

    pieces: list[bytes]
    errors: Mapping[int, int]
    """How often each error code is in it, for /metrics."""

    def throttled(self, throttle_ms: int) -> Packed:
        """The same, with how long the client waits: with that it begins."""
        first, *rest = self.pieces
        return self._replace(pieces=[_INT32.pack(throttle_ms) + first[_INT32.size :], *rest])


class KeptAnswers:
    __slots__ = ("_answers", "_size", "_version", "hits")

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[Packed, int]] = {}
        self._size = 0
        self._version = -1
        self.hits = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, version: int, shape: Hashable) -> Packed | None:
        if version != self._version:
            return None
        kept = self._answers.get(shape)
        if kept is None:
            return None
        self.hits += 1
        return kept[0]

    def put(self, version: int, shape: Hashable, answer: Packed, shape_bytes: int) -> None:
        """`shape_bytes`: what the shape holds in memory, about."""
        if version != self._version:
            self._answers.clear()
            self._size, self._version = 0, version
        answers = self._answers
        size = sum(map(len, answer.pieces)) + shape_bytes
        if size > METADATA_KEPT_BYTES_MAX or shape in answers:
            return
        while answers and (
            self._size + size > METADATA_KEPT_BYTES_MAX or len(answers) >= METADATA_ANSWERS_KEPT_MAX
        ):
            _, gone = answers.pop(next(iter(answers)))
            self._size -= gone
        answers[shape] = answer, size
        self._size += size


def in_larger_pieces(pieces: list[bytes]) -> Slices[list[bytes]]:
    """The same bytes in fewer pieces: each of them costs something whenever they are sent."""
    if len(pieces) < 2:
        return pieces
    larger: list[bytes] = []
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            larger.append(b"".join(gathered))
            gathered.clear()
            size = 0
            yield
    if gathered:
        larger.append(b"".join(gathered))
    return larger
