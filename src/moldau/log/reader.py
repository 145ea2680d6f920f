"""Finding things in a log: the bytes from an offset on, an offset by its timestamp.

Nothing here reads more than index entries and batch headers, except for the batches in which a timestamp
is looked for (`lookup`). With `read_nowait` a page that is not cached ends the search with BlockingIOError; the same
search with `read_waiting` then runs in a thread.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from moldau.base.limits import LOOKUP_STEPS_PER_READ
from moldau.log.index import Read
from moldau.log.lookup import Lookup
from moldau.log.scan import Batch, DamagedBatch, DamagedSegment, headers, whole_batches_end
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.records.batch import NO_TIMESTAMP
from moldau.runtime.ports import File

POSITIONS_MAX = 64
"""How many readers of one log are remembered; the one that was remembered first is forgotten first."""


class Slice(NamedTuple):
    """A part of a segment file that begins and ends with whole batches. Empty: no file and length 0."""

    file: File | None
    position: int
    length: int
    next_offset: int
    """Behind its last batch; UNKNOWN where it takes another look at the disk to tell."""


UNKNOWN = -1
EMPTY = Slice(None, 0, 0, UNKNOWN)


class Unchecked(BlockingIOError):
    """Nobody has looked at the checksums of what a read has found."""

    def __init__(self, segment: Segment, part: Slice) -> None:
        super().__init__(errno.EAGAIN, "it must be checked first", segment.log.path)
        self.segment = segment
        self.part = part


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Reader:
    __slots__ = ("_only_checked", "_positions", "_segments", "identity")

    def __init__(self, segments: Segments, *, only_checked: bool = True) -> None:
        """`only_checked`: what `read` finds is sound (see `checked`)."""
        self._segments = segments
        self._only_checked = only_checked
        self._positions: dict[int, tuple[int, int]] = {}
        """Offset -> (base offset of its segment, file position), of those who will come to read on."""
        self.identity = object()
        """Of what the files hold: another one once something else may lie where it did. Appends do not count."""

    def for_checking(self) -> Reader:
        """One that finds the same, for a thread that checks what it finds."""
        reader = Reader(self._segments.copy(), only_checked=False)
        reader._positions.update(self._positions)
        return reader

    def go_on_in(self, segments: Segments) -> None:
        """The log has other segments now, with the same records."""
        self._segments = segments
        self.forget_positions()

    def bounds_of(self, base_offset: int, next_offset: int) -> tuple[int, int]:
        """The offsets between which a segment's batches lie; `next_offset` is that of the log."""
        return base_offset, self._segments.end_offset_after(base_offset, next_offset)

    def forget_positions(self) -> None:
        """After the log was truncated, or compacted."""
        self._positions.clear()
        self.identity = object()

    def read(
        self,
        offset: int,
        next_offset: int,
        max_bytes: int,
        below_offset: int,
        whole_first_batch: bool,
        read: Read,
    ) -> Slice:
        """The offset lies in the log, below its next offset and below `below_offset`.

        DamagedBatch where the batch there is known to be damaged; Unchecked where nobody has looked.
        """
        segment = self._segments.at(offset)
        known = self._positions.get(offset)
        if known is not None and known[0] == segment.base_offset:
            position = known[1]
        elif offset == segment.base_offset and segment.size:
            position = 0
        else:
            batch = segment.find(offset, read)
            if batch is None:  # compaction may have removed the last records of a segment, or all
                following = self._segments.after(segment)
                if following is None or following.base_offset >= below_offset:
                    return EMPTY
                offset = following.base_offset
                return self.read(offset, next_offset, max_bytes, below_offset, whole_first_batch, read)
            position = batch.position
            self._remember(offset, segment.base_offset, position)  # others will start here too
        stop = segment.size
        is_active = segment is self._segments.active
        end_offset = next_offset if is_active else self._segments.end_offset_of_closed(segment)
        if below_offset < end_offset:
            stop, end_offset = self._end_below(segment, below_offset, read)
            part = self._cut(segment, position, stop, end_offset, max_bytes, whole_first_batch, read)
        elif position < stop and stop - position <= max_bytes:
            if is_active:
                self._remember(next_offset, segment.base_offset, stop)
            part = Slice(segment.log, position, stop - position, end_offset)
        else:
            part = self._cut(segment, position, stop, end_offset, max_bytes, whole_first_batch, read)
        if position >= segment.checked.above or not self._only_checked:
            return part
        return _sound_part(segment, part, read)

    def _end_below(self, segment: Segment, below_offset: int, read: Read) -> tuple[int, int]:
        """Where the batches end that lie wholly below an offset: the position, and the offset behind them."""
        known = self._positions.get(below_offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1], below_offset
        batch = segment.find(below_offset, read)
        if batch is None:
            return segment.size, below_offset
        if batch.header.base_offset < below_offset:  # it lies in the middle of a batch
            return batch.position, batch.header.base_offset
        self._remember(below_offset, segment.base_offset, batch.position)
        return batch.position, below_offset

    def _cut(
        self,
        segment: Segment,
        position: int,
        stop: int,
        next_offset: int,
        max_bytes: int,
        whole_first_batch: bool,
        read: Read,
    ) -> Slice:
        """At most `max_bytes`, in whole batches: half a batch is of no use to anyone."""
        if position >= stop:
            return EMPTY
        if stop - position > max_bytes:
            limit = position + max_bytes
            near = whole_batches_end(segment.log, position, segment.size, limit, read)
            if near is None or near[0] == position:
                first = next(headers(segment.log, position, segment.size, read))
                if first.header.size <= max_bytes:
                    near = segment.boundary(position, limit, read)
                elif whole_first_batch:
                    near = first.end_position, first.header.next_offset
                else:
                    return EMPTY
            stop, next_offset = near
            if stop < segment.size:  # behind its end compaction may have left a gap, up to the next segment
                self._remember(next_offset, segment.base_offset, stop)
        return Slice(segment.log, position, stop - position, next_offset)

    def _remember(self, offset: int, base_offset: int, position: int) -> None:
        positions = self._positions
        positions[offset] = (base_offset, position)
        if len(positions) > POSITIONS_MAX:
            del positions[next(iter(positions))]

    def offset_for_timestamp(
        self, timestamp: int, log_start_offset: int, read: Read, lookup: Lookup
    ) -> TimestampOffset | None:
        """The first record, from the log's start on, whose timestamp is not below the given one. TooMuch as the
        lookup says."""
        segments = self._segments
        for index in range(len(segments)):
            if self._max_timestamp_of(index, read, lookup) >= timestamp:
                segment = segments.by_number(index)
                found = _find_timestamp(segment, timestamp, log_start_offset, read, lookup)
                if found is not None:
                    return found
        return None

    def max_timestamp_offset(self, read: Read, lookup: Lookup) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the segments that are there. As in Kafka, it may lie
        below the log's start, in a segment that is not removed yet. Where no record has a time, it is the first."""
        segments = self._segments
        newest, newest_index = NO_TIMESTAMP, 0
        for index in range(len(segments)):
            timestamp = self._max_timestamp_of(index, read, lookup)
            if timestamp > newest:
                newest, newest_index = timestamp, index
        segment = segments.by_number(newest_index)
        return _find_timestamp(segment, newest, segment.base_offset, read, lookup)

    def _max_timestamp_of(self, index: int, read: Read, lookup: Lookup) -> int:
        if not self._segments.knows_max_timestamp_of(index):
            lookup.spend(LOOKUP_STEPS_PER_READ)
        return self._segments.max_timestamp_of(index, read)


def _sound_part(segment: Segment, part: Slice, read: Read) -> Slice:
    """What of a part of a segment is known to be sound, from its beginning on."""
    if part.file is None:
        return part
    checked, position = segment.checked, part.position
    what = checked.bad_at(position)
    if what is not None:
        raise DamagedBatch(part.file, position, what)
    stop = checked.end_from(position, position + part.length)
    if stop == position:
        raise Unchecked(segment, part)
    if stop == position + part.length:
        return part
    return Slice(part.file, position, stop - position, offset_at(segment, stop, read))


def offset_at(segment: Segment, position: int, read: Read) -> int:
    try:
        return next(headers(segment.log, position, segment.size, read)).header.base_offset
    except (BlockingIOError, DamagedSegment):  # it is not read now: whoever does will be told
        return UNKNOWN


def _find_timestamp(
    segment: Segment, timestamp: int, log_start_offset: int, read: Read, lookup: Lookup
) -> TimestampOffset | None:
    entry = segment.times.floor(timestamp - 1, read)
    before = None if entry is None else _batch_of_time_entry(segment, entry, read)
    if before is not None and before.header.last_offset >= log_start_offset:
        position = before.position
    else:
        place = segment.offsets.floor(log_start_offset - segment.base_offset, read)
        position = place[1] if place else 0
    for batch in headers(segment.log, position, segment.size, read):
        lookup.spend(1)
        if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= log_start_offset:
            found = lookup.first(segment, batch, timestamp, log_start_offset, read)
            if found is not None:
                return TimestampOffset(*found, batch.header.leader_epoch)
    return None


def _batch_of_time_entry(segment: Segment, entry: tuple[int, int], read: Read) -> Batch:
    """The batch that an entry is of: those before it are not newer. DamagedSegment where a time index says something
    that its batch does not: the search would go astray."""
    batch = segment.find(segment.base_offset + entry[1], read)
    if batch is None or batch.header.max_timestamp != entry[0]:
        position = batch.position if batch else segment.size
        raise DamagedSegment(segment.log, position, "the time index is wrong")
    return batch
