"""The segments of a log, found by offset.

All that is kept of a closed segment is its base offset and its largest timestamp; a bounded number of those
read lately have their files at hand. Searches that may wait for the disk run in threads on a `copy`, so
that the loop's own object is touched by the loop alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import nullcontext, suppress
from weakref import WeakValueDictionary

from moldau.log import names
from moldau.log.index import Read, read_waiting
from moldau.log.segment import Segment
from moldau.log.swap import put_in_place
from moldau.runtime.ports import Disk, File

CLOSED_SEGMENTS_KEPT = 16
_UNKNOWN = -2


class Segments:
    __slots__ = (
        "_bases",
        "_closed",
        "_closed_size",
        "_disk",
        "_folder",
        "_held",
        "_max_timestamps",
        "active",
        "generation",
    )

    def __init__(self, disk: Disk, folder: str, bases: list[int] | array[int], active: Segment) -> None:
        """`bases` are the base offsets of all segments; the last one is the active segment's."""
        self._disk = disk
        self._folder = folder
        self._bases = array("q", bases)
        self._max_timestamps = array("q", [_UNKNOWN]) * len(self._bases)
        self._closed: dict[int, Segment] = {}
        self._held: WeakValueDictionary[int, File] | None = None
        """Data files of segments that are no longer at hand, while some reader still has one: it must be the
        same object that is renamed."""
        self.active = active
        self.generation = 0
        """Counts how often files were taken out of the log: a search in a thread may have missed them."""
        self._closed_size = 0, 0, 0
        """The bytes of how many closed segments in which generation, as they were counted last."""

    def __len__(self) -> int:
        return len(self._bases)

    def copy(self) -> Segments:
        """For a search in a thread."""
        return Segments(self._disk, self._folder, self._bases, self.active)

    def relocate(self, folder: str) -> None:
        """The log's folder has another name now: who reads goes on."""
        self._folder = folder
        for segment in (*self._closed.values(), self.active):
            segment.relocate(folder)
        for base_offset, file in (self._held or {}).items():
            file.path = f"{folder}/{names.file_name(base_offset, names.LOG)}"

    def close(self) -> None:
        """No file is open any more. The log is of no use after that."""
        for segment in (*self._closed.values(), self.active):
            segment.close()
        for file in list((self._held or {}).values()):
            file.close()

    @property
    def bases(self) -> list[int]:
        return self._bases.tolist()

    @property
    def first_end_offset(self) -> int | None:
        """Where the oldest segment ends; None where it is the active one."""
        return self._bases[1] if len(self._bases) > 1 else None

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    def by_number(self, index: int) -> Segment:
        base_offset = self._bases[index]
        if base_offset == self.active.base_offset:
            return self.active
        segment = self._closed.get(base_offset)
        if segment is None:
            size = self._disk.size(f"{self._folder}/{names.file_name(base_offset, names.LOG)}")
            segment = Segment(self._disk, self._folder, base_offset, size=size, indexed=True)
            if self._held and (file := self._held.get(base_offset)) is not None:
                segment.reuse(file)
            if size:  # else it is only passed over, and must not displace one that is read
                self._keep(segment)
        return segment

    def at(self, offset: int) -> Segment:
        """The segment in which an offset lies."""
        if offset >= self.active.base_offset:
            return self.active
        return self.by_number(max(0, bisect_right(self._bases, offset) - 1))

    def after(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._bases, segment.base_offset)
        return self.by_number(index) if index < len(self._bases) else None

    def before(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._bases, segment.base_offset) - 2
        return self.by_number(index) if index >= 0 else None

    def end_offset_after(self, base_offset: int, next_offset: int) -> int:
        """Where the segment behind one begins; the end of the log where there is none."""
        index = bisect_right(self._bases, base_offset)
        return self._bases[index] if index < len(self._bases) else next_offset

    def end_offset_of_closed(self, segment: Segment) -> int:
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def knows_max_timestamp_of(self, index: int) -> bool:
        return index == len(self._bases) - 1 or self._max_timestamps[index] != _UNKNOWN

    def learn_from(self, copy: Segments) -> None:
        """Take over which timestamps a search on a copy has found out, if the copy's closed segments are there still
        as they were."""
        closed = len(copy._bases) - 1
        if self._bases[:closed] == copy._bases[:closed] and len(self._bases) > closed:
            for index in range(closed):
                if self._max_timestamps[index] == _UNKNOWN:
                    self._max_timestamps[index] = copy._max_timestamps[index]

    def max_timestamp_of(self, index: int, read: Read) -> int:
        if index == len(self._bases) - 1:
            return self.active.max_timestamp
        timestamp = self._max_timestamps[index]
        if timestamp == _UNKNOWN:
            segment = self.by_number(index)
            segment.load_max_timestamp(read)
            segment.check_max_timestamp(read)
            timestamp = self._max_timestamps[index] = segment.max_timestamp
        return timestamp

    def newest_ms(self, index: int, read: Read) -> int:
        """The time of a segment's newest record; where its records have none, that of the last write."""
        timestamp = self.max_timestamp_of(index, read)
        if timestamp >= 0:
            return timestamp
        return self._disk.modified_ms(f"{self._folder}/{names.file_name(self._bases[index], names.LOG)}")

    def remove_first(self) -> int:
        """Take the oldest segment, which is closed, out of the log: its files are renamed. Returns its base
        offset. OSError: it is still there.
        """
        segment = self.by_number(0)
        segment.mark_deleted()
        self.generation += 1
        del self._bases[0], self._max_timestamps[0]
        self._closed.pop(segment.base_offset, None)
        return segment.base_offset

    def remove_last(self) -> int:
        """Take the active segment out of the log: its files are renamed, and the one before it is active. Returns
        its base offset; after the last one of all, another has to `begin`. OSError: nothing has changed.
        """
        segment = self.active
        before = self.by_number(len(self._bases) - 2) if len(self._bases) > 1 else segment
        if before is not segment:
            before.load_max_timestamp(read_waiting)  # one entry: appends and the next `begin` go by it
        # An empty one may have no files yet.
        with suppress(FileNotFoundError) if segment.size == 0 else nullcontext():
            segment.mark_deleted()
        self.generation += 1
        del self._bases[-1], self._max_timestamps[-1]
        self._closed.pop(before.base_offset, None)
        self.active = before
        return segment.base_offset

    def begin(self, segment: Segment) -> None:
        """A new active segment; the old one is closed."""
        if self._bases:
            self._max_timestamps[-1] = self.active.max_timestamp
            self._keep(self.active)
        self._bases.append(segment.base_offset)
        self._max_timestamps.append(_UNKNOWN)
        self.active = segment

    def size_bytes(self) -> int:
        """Closed segments are looked at once: their size does not change."""
        generation, count, size = self._closed_size
        if generation != self.generation:
            count = size = 0
        for base_offset in self._bases[count:-1]:
            size += self._disk.size(f"{self._folder}/{names.file_name(base_offset, names.LOG)}")
        self._closed_size = self.generation, len(self._bases) - 1, size
        return size + self.active.size

    def replace(self, old: tuple[int, ...], new: tuple[int, ...]) -> list[str]:
        """Put segments that lie there as `.swap` files in the place of closed neighbours; the names of those
        files now. OSError: something is in between, and only a start finishes it.
        """
        first = self._bases.index(old[0])
        self.generation += 1
        suffix = f".{self.generation}{names.DELETED}"  # its name may have been another one's lately
        gone = []
        for index in range(first, first + len(old)):
            gone += self.by_number(index).mark_deleted(suffix)
        for base_offset in new:
            put_in_place(self._disk, self._folder, base_offset)
        for base_offset in old:
            self._closed.pop(base_offset, None)
            if self._held is not None:
                self._held.pop(base_offset, None)
        self._bases[first : first + len(old)] = array("q", new)
        self._max_timestamps[first : first + len(old)] = array("q", [_UNKNOWN]) * len(new)
        return gone

    def _keep(self, segment: Segment) -> None:
        self._closed[segment.base_offset] = segment
        if len(self._closed) > CLOSED_SEGMENTS_KEPT:
            oldest = self._closed.pop(next(iter(self._closed)))
            if oldest.is_open:
                if self._held is None:
                    self._held = WeakValueDictionary()
                self._held[oldest.base_offset] = oldest.log
