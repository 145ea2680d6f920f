"""Going through a segment with damage in it: every good batch, and every stretch between them that is not one.

After damage the next good batch is searched for: where the damaged one says that it ends, or else byte by
byte for something whose header fits and whose checksum is right. Memory is bounded by a window, whatever
lengths a damaged header claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import error
from typing import NamedTuple

from crc32c import crc32c

from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_MIN,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from moldau.runtime.ports import File

WINDOW_BYTES = 1024 * 1024
_OFFSETS_AHEAD_MAX = 2**31
"""A segment holds no offset farther from its base, so nothing found behind damage can be farther either."""
_LIKE_A_BATCH = re.compile(rb"\x02(?=.{4}\x00[\x00-\x7f])", re.DOTALL)
"""The magic byte, and attributes without bits that mean nothing."""
_ZEROES = bytes(WINDOW_BYTES)


class BadStretch(NamedTuple):
    """Bytes that are no good batch."""

    position: int
    end_position: int
    """Where the next good batch begins, or the end of the file."""
    what: str
    header: BatchHeader | None
    """Of a batch whose checksum alone is wrong; some of it may be wrong too."""
    next_offset: int | None
    """The base offset of the next good batch; None where there is none in this file."""
    cut_off: bool
    """The file ends within the batch: what an interrupted write leaves."""
    zeroes: bool


class Window:
    """Reads a file through a window, so that small reads close to each other are one."""

    __slots__ = ("_data", "_file", "_start", "stop")

    def __init__(self, file: File, stop: int) -> None:
        self._file = file
        self.stop = stop
        """No byte from here on is looked at, whatever comes to the file meanwhile."""
        self._start = 0
        self._data = b""

    def __call__(self, file: File, length: int, position: int) -> bytes:
        length = max(0, min(length, self.stop - position))
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            self._start = position
            self._data = file.pread(max(length, min(WINDOW_BYTES, self.stop - position)), position)
            at = 0
        return self._data[at : at + length]

    def at(self, position: int, length: int) -> bytes:
        return self(self._file, length, position)


def batches_and_damage(
    file: File, size: int, *, position: int = 0, next_offset: int = 0
) -> Iterator[Batch | BadStretch]:
    """All of a segment from a position on, in order. `next_offset`: the least that its next batch can have."""
    window = Window(file, size)
    while position < size:
        try:
            for batch in headers(file, position, size, window):
                position = batch.position
                if not _checksum_is_right(window, batch):
                    raise DamagedSegment(file, position, "the checksum does not match")
                yield batch
                position = batch.end_position
                next_offset = max(next_offset, batch.header.next_offset)
        except DamagedSegment as damage:
            stretch = _stretch(file, window, position, damage.what, next_offset)
            yield stretch
            position = stretch.end_position


def _checksum_is_right(window: Window, batch: Batch) -> bool:
    crc = 0
    position, end = batch.position + CRC_START, batch.end_position
    while position < end:
        piece = window.at(position, min(WINDOW_BYTES, end - position))
        if not piece:
            return False  # the file has become shorter
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc == batch.header.crc


def _stretch(file: File, window: Window, position: int, what: str, next_offset: int) -> BadStretch:
    """The damage at a position, with where it ends."""
    if _is_zero(window, position):
        return BadStretch(position, window.stop, "nothing but zeroes", None, None, False, True)
    header = _header_at(window, position)
    framed = header is not None and header.magic == MAGIC and header.length >= LENGTH_MIN
    end = position + header.size if header is not None and framed else 0
    if framed and end <= window.stop:
        following = _good_batch_at(file, window, end, next_offset)
        if following is not None or end == window.stop:
            base_offset = following.header.base_offset if following else None
            return BadStretch(position, end, what, header, base_offset, False, False)
    found = _search(file, window, position + 1, next_offset)
    if found is not None:
        return BadStretch(position, found.position, what, None, found.header.base_offset, False, False)
    return BadStretch(position, window.stop, what, None, None, header is None or end > window.stop, False)


def _header_at(window: Window, position: int) -> BatchHeader | None:
    try:
        return read_header(window.at(position, HEADER_BYTES))
    except error:
        return None


def _is_zero(window: Window, position: int) -> bool:
    """Whether there are only zeroes up to the end."""
    while position < window.stop:
        piece = window.at(position, WINDOW_BYTES)
        if piece != _ZEROES[: len(piece)]:
            return False
        position += max(1, len(piece))
    return True


def _search(file: File, window: Window, position: int, next_offset: int) -> Batch | None:
    while position + HEADER_BYTES <= window.stop:
        data = window.at(position, WINDOW_BYTES)
        for match in _LIKE_A_BATCH.finditer(data, MAGIC_POSITION):
            batch = _good_batch_at(file, window, position + match.start() - MAGIC_POSITION, next_offset)
            if batch is not None:
                return batch
        position += max(1, len(data) - HEADER_BYTES + 1)  # a header may lie across two windows
    return None


def _good_batch_at(file: File, window: Window, position: int, next_offset: int) -> Batch | None:
    try:
        batch = next(headers(file, position, window.stop, window), None)
    except DamagedSegment:
        return None
    if batch is None or not 0 <= batch.header.base_offset - next_offset <= _OFFSETS_AHEAD_MAX:
        return None
    return batch if _checksum_is_right(window, batch) else None
