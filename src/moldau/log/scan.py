"""Going through the batches of a segment file: by their headers alone, or with every byte checked."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from moldau.log.index import Read
from moldau.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LENGTH_MIN,
    MAGIC,
    BatchHeader,
    crc_of,
)
from moldau.runtime.ports import Buffer, File

HEADER_WINDOW_BYTES = 4096
"""How much is read at once while looking at headers: what lies between two index entries by default."""
CHECK_WINDOW_BYTES = 1024 * 1024


OFFSET_AND_LENGTH = Struct(">qi")
"""How a batch begins."""


class Batch(NamedTuple):
    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header.size


class DamagedSegment(Exception):
    """The bytes at a position are not a batch, or not one that belongs there."""

    def __init__(self, file: File, position: int, what: str) -> None:
        super().__init__(f"{file.path} at {position}: {what}")
        self.path = file.path
        self.position = position
        self.what = what


class DamagedBatch(DamagedSegment):
    """The bytes look like a batch, and its checksum does not match: no index is to blame for that."""


def headers(file: File, position: int, stop: int, read: Read) -> Iterator[Batch]:
    """The batches from a position on. DamagedSegment where the next one does not look like a batch."""
    window_start = position
    window: Buffer = b""
    while position < stop:
        if position + HEADER_BYTES > window_start + len(window):
            window_start = position
            window = read(file, min(HEADER_WINDOW_BYTES, stop - position), position)
        batch = _batch_at(file, window, window_start, position, stop)
        yield batch
        position = batch.end_position


def whole_batches_end(file: File, position: int, stop: int, limit: int, read: Read) -> tuple[int, int] | None:
    """The end of the last batch that ends by `limit`, and the offset of the batch that begins there.

    None where one look at the file does not tell: `headers` will. The batches are stepped over, not checked.
    """
    window = read(file, min(HEADER_WINDOW_BYTES, stop - position), position)
    at = 0
    last = len(window) - HEADER_BYTES
    while at <= last:
        base_offset, length = OFFSET_AND_LENGTH.unpack_from(window, at)
        if length < LENGTH_MIN:
            return None
        end = at + length + LENGTH_AND_BEFORE_BYTES
        if position + end > limit:
            return position + at, base_offset
        at = end
    return None


def checked_batches(
    file: File, position: int, stop: int, read: Read, window_bytes: int = CHECK_WINDOW_BYTES
) -> Iterator[tuple[Batch, memoryview]]:
    """The batches from a position on with their bytes, each one's checksum verified; else DamagedSegment."""
    window_start, window = position, memoryview(b"")
    while position < stop:
        if position + HEADER_BYTES > window_start + len(window):
            window_start = position
            window = memoryview(read(file, min(window_bytes, stop - position), position))
        batch = _batch_at(file, window, window_start, position, stop)
        size = batch.header.size
        if position + size > window_start + len(window):
            window_start = position
            window = memoryview(read(file, min(max(window_bytes, size), stop - position), position))
        data = window[position - window_start : position - window_start + size]
        check_sum(file, batch, data)
        yield batch, data
        position += size


def check_sum(file: File, batch: Batch, data: Buffer) -> None:
    """DamagedBatch where the bytes of a batch are not those that its checksum is of."""
    size = batch.header.size
    if len(data) != size or crc_of(data, 0, size) != batch.header.crc:
        raise DamagedBatch(file, batch.position, "the checksum does not match")


def _batch_at(file: File, window: Buffer, window_start: int, position: int, stop: int) -> Batch:
    at = position - window_start
    if at + HEADER_BYTES > len(window):
        raise DamagedSegment(file, position, f"{stop - position} bytes are left, less than a header")
    header = BatchHeader._make(HEADER.unpack_from(window, at))
    if header.magic != MAGIC or header.length < LENGTH_MIN:
        raise DamagedSegment(file, position, f"magic {header.magic}, length {header.length}")
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise DamagedSegment(file, position, f"offsets {header.base_offset} to {header.last_offset}")
    end = position + header.length + LENGTH_AND_BEFORE_BYTES
    if end > stop:
        raise DamagedSegment(file, position, f"the batch reaches {end - stop} bytes beyond the end")
    return Batch(position, header)
