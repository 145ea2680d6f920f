"""Reading index files as they lie on the disk, and checking them against the batches of their segment.

A check is fed the segment's batches in order and compares each entry with the batch that it names; it holds
one entry and the one behind it. Of many wrong entries the first is told in full and the others are counted.

Kafka preallocates the indexes of an active segment: after an unclean stop up to 10 MiB of zeroes follow the
entries. They are told apart from entries here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from moldau.log.scan import Batch
from moldau.records.batch import NO_TIMESTAMP
from moldau.runtime.ports import Disk

BLOCK_ENTRIES = 32768
UNCOVERED_BYTES_MIN = 1024 * 1024
"""Fewer bytes without an offset index entry are no matter, whatever `index.interval.bytes` is."""


class Entry(NamedTuple):
    position: int
    """In the index file."""
    fields: tuple[int, ...]


class WrongEntries(NamedTuple):
    first: Entry
    what: str
    """What is wrong with the first."""
    total: int


class IndexFile:
    """One file. `zeroes_at` is known when `entries` has been read to its end."""

    def __init__(self, disk: Disk, path: str, entry: Struct) -> None:
        self.path = path
        self.size = disk.size(path)
        self.entry = entry
        self.rest_bytes = self.size % entry.size
        """Bytes after the last whole entry."""
        self.zeroes_at: int | None = None
        """Where zeroes begin that go on to the end of the file."""
        self.error: OSError | None = None
        """Why the entries ended early."""
        self._disk = disk

    def entries(self) -> Iterator[Entry]:
        """All but the zeroes at the end."""
        stop, step = self.size - self.rest_bytes, self.entry.size * BLOCK_ENTRIES
        zero: Entry | None = None
        try:
            file = self._disk.open(self.path)
        except OSError as error:
            self.error = error
            return
        try:
            for start in range(0, stop, step):
                block = file.pread(min(step, stop - start), start)
                if zero is not None and block.count(0) == len(block):
                    continue
                whole = len(block) - len(block) % self.entry.size  # shorter where the file was cut meanwhile
                for number, fields in enumerate(self.entry.iter_unpack(block[:whole])):
                    entry = Entry(start + number * self.entry.size, fields)
                    if any(fields):
                        if zero is not None:
                            yield zero
                            zero = None
                        yield entry
                    elif zero is None:
                        zero = entry
        except OSError as error:
            self.error = error
            return
        finally:
            file.close()
        self.zeroes_at = None if zero is None else zero.position


class _Check:
    """Entries of two fields that ascend, looked at one by one."""

    def __init__(self, base_offset: int, entries: Iterable[Entry]) -> None:
        self._base_offset = base_offset
        self._coming = iter(entries)
        self._following = next(self._coming, None)
        self._current: Entry | None = None
        self._last: tuple[int, ...] = (-1, -1)
        self._tolerant = False
        self._first_wrong: tuple[Entry, str] | None = None
        self._wrong_count = 0
        self._step()

    @property
    def wrong(self) -> WrongEntries | None:
        if self._first_wrong is None:
            return None
        entry, what = self._first_wrong
        return WrongEntries(entry, what, self._wrong_count)

    def skip_damage(self) -> None:
        """What follows in the segment cannot be read: entries that point there are not to blame."""
        self._tolerant = True

    def _step(self) -> None:
        """Go on to the next entry that is in order. Of two that are not, the one that fits nowhere is wrong."""
        while (entry := self._following) is not None:
            self._following = next(self._coming, None)
            following = self._following.fields if self._following else None
            if _ascend(self._last, entry.fields) and (
                following is None or _ascend(entry.fields, following) or not _ascend(self._last, following)
            ):
                self._last = entry.fields
                break
            self._blame(entry, "is out of order with the entries around it")
        self._current = entry

    def _blame(self, entry: Entry, what: str) -> None:
        if self._first_wrong is None:
            self._first_wrong = (entry, what)
        self._wrong_count += 1

    def _blame_all_left(self, what: str) -> None:
        while self._current is not None:
            self._blame(self._current, what)
            self._step()


class OffsetIndexCheck(_Check):
    """Entries are (relative offset, position): the last offset of the batch at a position.

    As in older Kafkas it may also be that of a later batch, before the next entry: several were appended at
    once.
    """

    _awaited: Entry | None = None
    _last_position = 0
    _last_batch_position = 0
    _spacing_max = 0

    def take(self, batch: Batch) -> None:
        while (entry := self._current) is not None and entry.fields[1] < batch.position:
            if not self._tolerant:
                self._blame(entry, f"points to byte {entry.fields[1]} of the log, where no batch begins")
            self._step()
        self._tolerant = False
        starts_here = entry is not None and entry.fields[1] == batch.position
        if self._awaited is not None:
            offset = self._offset(self._awaited)
            if offset == batch.header.last_offset and not starts_here:
                self._awaited = None
            elif starts_here or offset < batch.header.last_offset:
                self._blame_offset(self._awaited)
        if entry is not None and starts_here:
            self._take_entry(entry, batch)
            self._step()
        self._last_batch_position = batch.position

    def _take_entry(self, entry: Entry, batch: Batch) -> None:
        offset = self._offset(entry)
        if offset < batch.header.last_offset:
            self._blame_offset(entry)
        elif offset > batch.header.last_offset:
            self._awaited = entry
        self._spacing_max = max(self._spacing_max, batch.position - self._last_position)
        self._last_position = batch.position

    def finish(self, size: int, *, running: bool) -> None:
        if self._awaited is not None and not self._tolerant:
            self._blame_offset(self._awaited)
        if running:
            return  # the log has grown since its end was looked up
        while (entry := self._current) is not None and entry.fields[1] < size:
            if not self._tolerant:
                self._blame(entry, f"points to byte {entry.fields[1]} of the log, where no batch begins")
            self._step()
        if (entry := self._current) is not None:
            self._blame_all_left(f"points to byte {entry.fields[1]}, past the end of the log ({size} bytes)")

    @property
    def uncovered_bytes(self) -> int:
        """How much of the log has no entry at its end, where that is more than could be meant so."""
        uncovered = self._last_batch_position - self._last_position
        return uncovered if uncovered > max(UNCOVERED_BYTES_MIN, 4 * self._spacing_max) else 0

    def _offset(self, entry: Entry) -> int:
        return self._base_offset + entry.fields[0]

    def _blame_offset(self, entry: Entry) -> None:
        what = f"says that offset {self._offset(entry)} is at byte {entry.fields[1]} of the log; it is not"
        self._blame(entry, what)
        self._awaited = None


class TimeIndexCheck(_Check):
    """Entries are (timestamp, relative offset): the largest timestamp so far, and an offset of its batch."""

    max_timestamp = NO_TIMESTAMP

    def take(self, batch: Batch) -> None:
        header = batch.header
        while (entry := self._current) is not None and self._offset(entry) <= header.last_offset:
            timestamp, offset = entry.fields[0], self._offset(entry)
            if offset < header.base_offset:
                if not self._tolerant:
                    self._blame(entry, f"names offset {offset}, which is in no batch")
            elif timestamp != header.max_timestamp:
                what = f"gives offset {offset} the time {timestamp}; its batch has {header.max_timestamp}"
                self._blame(entry, what)
            elif timestamp <= self.max_timestamp:
                what = f"gives {timestamp} as the largest time so far, which is {self.max_timestamp}"
                self._blame(entry, what)
            self._step()
        self._tolerant = False
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def finish(self, *, running: bool) -> None:
        entry = self._current
        if entry is not None and not running and not self._tolerant:
            self._blame_all_left(f"names offset {self._offset(entry)}, past the end of the segment")

    @property
    def last_timestamp(self) -> int:
        """Of the last entry that is in order; -1 where there is none."""
        return self._last[0]

    def _offset(self, entry: Entry) -> int:
        return self._base_offset + entry.fields[1]


def wrong_transactions(
    base_offset: int, next_offset: int | None, entries: Iterable[Entry]
) -> WrongEntries | None:
    """Check a transaction index: entries end within their segment, in ascending order."""
    first: tuple[Entry, str] | None = None
    count = 0
    last = base_offset - 1
    for entry in entries:
        version, producer_id, first_offset, last_offset, _ = entry.fields
        what = ""
        if version != 0 or producer_id < 0 or first_offset >= last_offset:
            what = f"is no aborted transaction (version {version}, producer {producer_id})"
        elif last_offset <= last:
            what = "is out of order with the entries around it"
        elif next_offset is not None and last_offset >= next_offset:
            what = f"ends at offset {last_offset}, past the end of the segment"
        else:
            last = last_offset
        if what:
            first = first or (entry, what)
            count += 1
    return WrongEntries(*first, count) if first else None


def _ascend(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return before[0] < after[0] and before[1] < after[1]


def last_entry(disk: Disk, path: str, entry: Struct) -> tuple[int, ...] | None:
    """The last entry before zeroes, found by bisection; None where there is none."""
    try:
        count = disk.size(path) // entry.size
        file = disk.open(path)
    except FileNotFoundError:
        return None
    low, found = 0, None
    try:
        while low < count:
            middle = (low + count) // 2
            data = file.pread(entry.size, middle * entry.size)
            fields: tuple[int, ...] = entry.unpack(data) if len(data) == entry.size else ()
            if any(fields):
                low, found = middle + 1, fields
            else:
                count = middle
    finally:
        file.close()
    return found
