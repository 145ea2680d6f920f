"""One segment of a log: a file of batches with its two sparse indexes.

The rules for index entries, rolling and the time index are Kafka's. An append is one write; if it fails or
is short, the file is cut back, so it never ends within a batch while the process lives. A segment knows
where things are; what may be read, and which batch comes next, is the log's to say.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from moldau.log import names
from moldau.log.checked import Checked
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY, Index, Read
from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.records.batch import NO_TIMESTAMP
from moldau.runtime.ports import Buffer, Disk, File

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Index entries hold offsets relative to the base offset as 32 bits."""
INDEX_GAP_BYTES_MAX = 4 * 1024 * 1024
"""What lies between two entries of an index is a few KB, or with a large `index.interval.bytes` what it says. More
than this is gone through only in a segment whose indexes have just been built."""
TIME_CHECKED_BYTES = 65_536
_ASK = -(2**63)


class SegmentCut(NamedTuple):
    """What is left of a segment whose end is cut off."""

    position: int
    """Above zero: a segment of which nothing stays goes whole."""
    offset_entries: int
    time_entries: int
    last_time_entry: int
    max_timestamp: int
    offset_of_max_timestamp: int


class Segment:
    __slots__ = (
        "_disk",
        "_log",
        "_offsets_max",
        "_suffix",
        "_times_max",
        "base_offset",
        "bytes_since_index",
        "checked",
        "created_ms",
        "first_timestamp",
        "full",
        "is_reindexed",
        "last_time_entry",
        "max_timestamp",
        "offset_of_max_timestamp",
        "offsets",
        "path",
        "roll_after_ms",
        "roll_at",
        "size",
        "times",
    )

    def __init__(
        self, disk: Disk, folder: str, base_offset: int, *, size: int, indexed: bool, suffix: str = ""
    ) -> None:
        """A segment that exists. Without `indexed` its indexes are taken as empty, to be built anew.

        `suffix` is that of its files' names while it is not part of the log yet.
        """
        self._disk = disk
        self._suffix = suffix
        self._log: File | None = None
        self.base_offset = base_offset
        self.path = f"{folder}/{names.file_name(base_offset, '')}"
        self.size = size
        self.checked = Checked(size)
        self.bytes_since_index = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.last_time_entry = NO_TIMESTAMP
        self.first_timestamp: int | None = None
        """The max timestamp of the first batch: what rolling by time counts from. None: not known yet."""
        self.created_ms = 0
        self.roll_after_ms = 0
        self.roll_at = _ASK
        """A batch with a later timestamp than this may have to go to a new segment: ask `has_waited`."""
        self._offsets_max = self._times_max = RELATIVE_OFFSET_MAX
        self.full = False
        """An index has no room left: the next batch goes to a new segment."""
        self.is_reindexed = False
        """Its indexes were built anew in this life: how sparse they are is how sparse they have to be."""
        if indexed:
            self.offsets = Index.of_file(disk, self.path + names.OFFSET_INDEX, OFFSET_ENTRY)
            self.times = Index.of_file(disk, self.path + names.TIME_INDEX, TIME_ENTRY)
        else:
            self.offsets = Index(disk, self.path + names.OFFSET_INDEX + suffix, OFFSET_ENTRY)
            self.times = Index(disk, self.path + names.TIME_INDEX + suffix, TIME_ENTRY)

    @classmethod
    def new(cls, disk: Disk, folder: str, base_offset: int, now_ms: int) -> Segment:
        """An empty one whose files come with their first content: an idle partition has none."""
        segment = cls(disk, folder, base_offset, size=0, indexed=False)
        segment.created_ms = now_ms
        return segment

    @classmethod
    def create(cls, disk: Disk, folder: str, base_offset: int, now_ms: int) -> Segment:
        """An empty one that is there after a restart. Files that a failed attempt left behind are emptied."""
        segment = cls.new(disk, folder, base_offset, now_ms)
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            if disk.exists(segment.path + suffix):
                disk.open(segment.path + suffix).truncate(0)
        segment.log  # noqa: B018 (opening creates it)
        return segment

    @property
    def log(self) -> File:
        if self._log is None:
            # One that has content is there, unless the segment was removed: it must not come back.
            self._log = self._disk.open(self.path + names.LOG + self._suffix, create=self.size == 0)
        return self._log

    @property
    def is_open(self) -> bool:
        """Whether its data file may be in someone's hands."""
        return self._log is not None

    def reuse(self, file: File) -> None:
        """Go on with a data file that someone has still."""
        self._log = file

    def relocate(self, folder: str) -> None:
        """Its folder has another name now: who reads the data file goes on."""
        self.path = f"{folder}/{names.file_name(self.base_offset, '')}"
        if self._log is not None:
            self._log.path = self.path + names.LOG + self._suffix
        self.offsets.relocate(self.path + names.OFFSET_INDEX)
        self.times.relocate(self.path + names.TIME_INDEX)

    def append(
        self,
        data: Buffer | None,
        length: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write batches at the end, with at most one index entry. OSError: nothing has changed.

        With None the batches lie there already: recovery counts them in, and a follower that has written several.
        """
        position = self.size
        if data is not None:
            written = (self._log or self.log).pwrite(data, position)
            if written != length:
                self._write_rest(data, written, position)
        if position == 0:
            self.first_timestamp = max_timestamp
            self._set_roll_at()
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        since = self.bytes_since_index
        if since > index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self.add_time_entry()
            self.full = self.offsets.count >= self._offsets_max or self.times.count >= self._times_max
            since = 0
        self.bytes_since_index = since + length
        self.size = position + length

    def write(self, data: Buffer) -> None:
        """Write batches at the end that are counted in afterwards, one by one. OSError: nothing has changed."""
        written = self.log.pwrite(data, self.size)
        if written != len(data):
            self._write_rest(data, written, self.size)

    def _write_rest(self, data: Buffer, written: int, position: int) -> None:
        view = memoryview(data)
        try:
            while written < len(view):
                written += self.log.pwrite(view[written:], position + written)
        except OSError:
            self.log.truncate(position)
            raise

    def add_time_entry(self) -> None:
        if self.max_timestamp > self.last_time_entry:
            self.times.append(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
            self.last_time_entry = self.max_timestamp

    @property
    def is_sealed(self) -> bool:
        return (
            not self.offsets.has_pending
            and not self.times.has_pending
            and self.max_timestamp <= self.last_time_entry
        )

    def seal(self) -> None:
        """Complete the indexes: the last time entry is what retention and look-up by time go by."""
        self.add_time_entry()
        for index in (self.offsets, self.times):
            index.drain()
            index.file  # noqa: B018 (an index without entries is an empty file)

    def reload_indexes(self, read: Read) -> None:
        """The index files were replaced."""
        self.offsets = Index.of_file(self._disk, self.path + names.OFFSET_INDEX, OFFSET_ENTRY)
        self.times = Index.of_file(self._disk, self.path + names.TIME_INDEX, TIME_ENTRY)
        last = self.times.last(read)
        self.last_time_entry = last[0] if last else NO_TIMESTAMP
        self.is_reindexed = True

    def load_max_timestamp(self, read: Read) -> None:
        """Take the largest timestamp from the time index of a sealed segment."""
        last = self.times.last(read)
        if last is not None:
            self.max_timestamp = self.last_time_entry = last[0]
            self.offset_of_max_timestamp = self.base_offset + last[1]

    def check_max_timestamp(self, read: Read) -> None:
        """DamagedSegment where the last entry of the time index cannot be right: retention goes by it.

        Its batch must have that time, and the batches just behind it no later one.
        """
        last = self.times.last(read)
        try:
            place = None if last is None else self.find(self.base_offset + last[1], read)
        except DamagedSegment:  # the batches are damaged: there is nothing to compare with
            return
        if last is not None and (place is None or place.header.max_timestamp != last[0]):
            raise DamagedSegment(self.log, place.position if place else 0, "the time index is wrong")
        self._check_later_timestamps(place.position if place else 0, read)

    def _check_later_timestamps(self, start: int, read: Read) -> None:
        later: Batch | None = None
        with suppress(DamagedSegment):  # as far as the batches can be read
            for batch in headers(self.log, start, self.size, read):
                if batch.header.max_timestamp > self.max_timestamp:
                    later = batch
                if later is not None or batch.position - start > TIME_CHECKED_BYTES:
                    break
        if later is not None:
            raise DamagedSegment(self.log, later.position, "the time index lacks entries")

    def load_first_timestamp(self, read: Read) -> None:
        first = next(headers(self.log, 0, self.size, read), None)
        self.first_timestamp = None if first is None else first.header.max_timestamp
        self._set_roll_at()

    def set_limits(self, roll_after_ms: int, index_bytes_max: int) -> None:
        """`segment.ms` with its jitter, and `segment.index.bytes`."""
        self.roll_after_ms = roll_after_ms
        self._offsets_max = index_bytes_max // OFFSET_ENTRY.size
        self._times_max = index_bytes_max // TIME_ENTRY.size - 1  # room for the entry that sealing adds
        self.full = self.offsets.count >= self._offsets_max or self.times.count >= self._times_max
        self._set_roll_at()

    def _set_roll_at(self) -> None:
        first = self.first_timestamp
        self.roll_at = first + self.roll_after_ms if first is not None and first >= 0 else _ASK

    def has_waited(self, max_timestamp: int, now_ms: int) -> bool:
        """Whether `segment.ms` is over: by the records' time, where they have one, else by the clock."""
        first = self.first_timestamp
        if first is None or self.size == 0:
            return False
        return (max_timestamp - first if first >= 0 else now_ms - self.created_ms) > self.roll_after_ms

    def find(self, offset: int, read: Read) -> Batch | None:
        """The first batch whose last offset is not below the given one."""
        entry = self.offsets.floor(offset - self.base_offset, read)
        start = entry[1] if entry else 0
        if start >= self.size > 0:
            raise DamagedSegment(self.log, start, "an index entry points behind the end")
        for batch in headers(self.log, start, self.size, read):
            if batch.position == start and start and batch.header.base_offset > offset:
                raise DamagedSegment(self.log, start, "an index entry points behind its offset")
            if batch.position - start > INDEX_GAP_BYTES_MAX and not self.is_reindexed:
                raise DamagedSegment(self.log, start, "the index lacks entries")
            if batch.header.last_offset >= offset:
                return batch
        return None

    def ends_by(self, next_offset: int, size: int, read: Read) -> bool:
        """Whether the batches up to a position are whole, and the last one ends before an offset."""
        entry = self.offsets.last(read)
        found = self.base_offset
        try:
            for batch in headers(self.log, entry[1] if entry and 0 <= entry[1] < size else 0, size, read):
                found = batch.header.next_offset
        except DamagedSegment:
            return False
        return found <= next_offset

    def boundary(self, start: int, stop: int, read: Read) -> tuple[int, int]:
        """The end of the last whole batch in [start, stop), and the offset of the batch that begins there.

        `start` is the beginning of a batch that ends before `stop`, and `stop` lies within the segment.
        """
        entry = self.offsets.floor(stop, read, field=1)
        position = max(start, entry[1]) if entry else start
        for batch in headers(self.log, position, self.size, read):
            if batch.end_position > stop:
                return batch.position, batch.header.base_offset
        raise ValueError(f"{stop} is not within the {self.size} bytes of {self.path}")

    def look_at_cut(self, position: int, next_offset: int, read: Read) -> SegmentCut:
        """What is left when all batches from a position on are cut off; `next_offset` is the first one's offset."""
        offset_entries = self.offsets.count_below(position, read, field=1)
        time_entries = self.times.count_below(next_offset - self.base_offset, read, field=1)
        last = self.times.entry_at(time_entries - 1, read) if time_entries else None
        newest, newest_offset = (
            (last[0], self.base_offset + last[1]) if last else (NO_TIMESTAMP, self.base_offset)
        )
        entry = self.offsets.floor(newest_offset - self.base_offset, read)
        for batch in headers(self.log, entry[1] if entry else 0, position, read):
            if batch.header.max_timestamp > newest:
                newest, newest_offset = batch.header.max_timestamp, batch.header.last_offset
        last_time_entry = last[0] if last else NO_TIMESTAMP
        return SegmentCut(position, offset_entries, time_entries, last_time_entry, newest, newest_offset)

    def cut(self, cut: SegmentCut) -> None:
        """Cut batches off. OSError: they are there still, and found the longer way."""
        self.offsets.truncate_to(cut.offset_entries)
        self.times.truncate_to(cut.time_entries)
        self.last_time_entry = cut.last_time_entry
        self.log.truncate(cut.position)
        self.size = cut.position
        self.checked.cut(cut.position)
        self.bytes_since_index = 0
        self.max_timestamp = cut.max_timestamp
        self.offset_of_max_timestamp = cut.offset_of_max_timestamp

    def mark_deleted(self, mark: str = names.DELETED) -> list[str]:
        """Rename its files out of the log, and say how. Who reads them goes on; OSError: try again.

        The data comes last: an index without data would lie there for ever after a crash.
        """
        gone = []
        for index, suffix in ((self.offsets, names.OFFSET_INDEX), (self.times, names.TIME_INDEX)):
            target = self.path + suffix + mark
            if index.path != target:
                with suppress(FileNotFoundError):
                    index.rename(target)
            gone.append(target)
        target = self.path + names.LOG + mark
        if self._log is not None:
            self._log.rename(target)
        else:
            self._disk.rename(self.path + names.LOG, target)
        return [path.rsplit("/", 1)[-1] for path in (*gone, target)]

    def close(self) -> None:
        """Its files are open no more."""
        if self._log is not None:
            self._log.close()
        self.offsets.close()
        self.times.close()

    def sync(self) -> None:
        """fsync of everything. Blocks."""
        self.log.sync()
        self.offsets.file.sync()
        self.times.file.sync()
