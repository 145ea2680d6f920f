"""What is remembered of a batch whose records a look-up by time had to walk, so that the next one need not.

The first record that is not older than some time is one that is newer than all before it. So where few records are
(clocks stand still for a millisecond, or for all of a batch with LogAppendTime), those are kept and every answer is
exact. Where they are many, the newest time so far is kept every so many records, with the place of the next record: a
look-up then walks from one mark to the next.

Marks are made from bytes whose checksum was right, by a thread, and are kept under the identity of what a log's files
were then (`Reader`), together with the batch's whole header: they never answer for other bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from moldau.base.limits import LOOKUP_BATCHES_REMEMBERED_MAX, LOOKUP_MARKS_MAX
from moldau.records import varint
from moldau.records.batch import LOG_APPEND_TIME, BatchHeader
from moldau.records.record import RECORD_BYTES_MIN, BadRecord
from moldau.runtime.ports import Buffer

_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_NO_DELTA = -(2**70)

Found = tuple[int, int]
"""A record's timestamp and offset."""


class Stretch(NamedTuple):
    """Where in a batch's records, unfolded, the answer lies."""

    start: int
    stop: int
    records: int


class Marks:
    __slots__ = ("_offsets", "_places", "_step", "_times", "header", "start_offset")

    def __init__(self, header: BatchHeader, start_offset: int, body: Buffer) -> None:
        """Walks all records. Those below `start_offset`, where the log begins, do not count. BadRecord."""
        self.header = header
        self.start_offset = start_offset
        self._times = array("q")
        self._offsets: array[int] | None = None
        self._places = array("q")
        self._step = max(1, -(-header.count // LOOKUP_MARKS_MAX))
        self._walk(body)

    def _walk(self, body: Buffer) -> None:
        """The inner loop: integers of one byte are decoded in line, and offsets only where they matter."""
        decode, header, size = varint.decode, self.header, len(body)
        count, start_delta = header.count, self.start_offset - header.base_offset
        if count * RECORD_BYTES_MIN > size:
            raise BadRecord(f"{count} records cannot fit into {size} bytes")
        is_stamped = header.attributes & LOG_APPEND_TIME
        newest, next_mark = _NO_DELTA, self._step
        deltas: list[int] = []
        offset_deltas: list[int] = []
        position = 0
        try:
            for index in range(1, count + 1):
                byte = body[position]
                if byte < 128:
                    length, position = byte >> 1 if not byte & 1 else -1, position + 1
                else:
                    length, position = decode(body, position)
                end = position + length
                if length < RECORD_BYTES_MIN - 1 or end > size:
                    raise BadRecord(f"record length {length} is out of range")
                byte = body[position + 1]
                if byte < 128:
                    delta, position = (byte >> 1) ^ -(byte & 1), position + 2
                else:
                    delta, position = decode(body, position + 1, 10)
                if is_stamped:
                    delta = 0
                if delta > newest:
                    offset_delta, _ = decode(body, position)
                    if offset_delta >= start_delta:
                        newest = delta
                        if len(deltas) <= LOOKUP_MARKS_MAX:
                            deltas.append(delta)
                            offset_deltas.append(offset_delta)
                position = end
                if index == next_mark:
                    self._mark(newest, end)
                    next_mark += self._step
        except (IndexError, varint.BadVarint):
            raise BadRecord("found invalid record structure") from None
        if position != size:
            raise BadRecord(f"{size - position} bytes are left after the last record")
        if len(deltas) <= LOOKUP_MARKS_MAX:
            self._times = array("q", [self._time(delta) for delta in deltas])
            self._offsets = array("q", [header.base_offset + delta for delta in offset_deltas])
            self._places = array("q")

    def _mark(self, newest_delta: int, position: int) -> None:
        self._times.append(self._time(newest_delta))
        self._places.append(position)

    def _time(self, delta: int) -> int:
        """Within 64 bits: a client's base and delta may add up to more."""
        header = self.header
        base = header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp
        return max(_EARLIEST, min(base + delta, _LATEST))

    def find(self, timestamp: int) -> Found | Stretch | None:
        """The first record that is not older, or where it lies; None where all are older."""
        at = bisect_left(self._times, timestamp)
        if self._offsets is not None:
            return (self._times[at], self._offsets[at]) if at < len(self._times) else None
        start = self._places[at - 1] if at else 0
        stop = self._places[at] if at < len(self._places) else -1
        return Stretch(start, stop, min(self._step, self.header.count - at * self._step))


def first_in(body: Buffer, stretch: Stretch, header: BatchHeader, timestamp: int, start: int) -> Found | None:
    """The first record of a stretch that is not older than a time, and not below an offset."""
    for found, offset, _ in stamps(body, stretch.start, stretch.records, header):
        if found >= timestamp and offset >= start:
            return found, offset
    return None


def stamps(body: Buffer, position: int, count: int, header: BatchHeader) -> Iterator[tuple[int, int, int]]:
    """Timestamp, offset and end position of each record from a position on. BadRecord where there is none."""
    decode = varint.decode
    base_offset, base_timestamp, size = header.base_offset, header.base_timestamp, len(body)
    appended_at = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    try:
        for _ in range(count):
            length, position = decode(body, position)
            end = position + length
            if length < RECORD_BYTES_MIN - 1 or end > size:
                raise BadRecord(f"record length {length} is out of range")
            delta, position = decode(body, position + 1, 10)
            offset_delta, _ = decode(body, position)
            yield (
                base_timestamp + delta if appended_at is None else appended_at,
                base_offset + offset_delta,
                end,
            )
            position = end
    except (IndexError, varint.BadVarint):
        raise BadRecord("found invalid record structure") from None


class RememberedMarks:
    """Of all logs of a broker; those that were made first are forgotten first. Threads may look, the loop writes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[object, int, int], Marks] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, identity: object, segment: int, header: BatchHeader, start_offset: int) -> Marks | None:
        marks = self._kept.get((identity, segment, header.base_offset))
        if marks is None or marks.header != header or marks.start_offset != start_offset:
            return None
        return marks

    def put(self, identity: object, segment: int, marks: Marks) -> None:
        kept = self._kept
        key = identity, segment, marks.header.base_offset
        kept.pop(key, None)
        kept[key] = marks
        if len(kept) > LOOKUP_BATCHES_REMEMBERED_MAX:
            del kept[next(iter(kept))]

    def forget(self, identity: object) -> None:
        for key in [key for key in self._kept if key[0] is identity]:
            del self._kept[key]
