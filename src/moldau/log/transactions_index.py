"""Aborted transactions: `<base offset>.txnindex` beside a segment whose markers aborted some, in Kafka's format.

    version 2 (0) | producer id 8 | first offset 8 | last offset 8 | last stable offset 8

An entry stands with the segment of its marker, which may be a later one than those of its records; entries ascend in
their last offset. A file comes with its first entry, so most segments have none: which of them do is kept in memory.
A read_committed answer names the aborted transactions of its records, and the reader leaves their records out.

Entries are made anew from the batches where a segment is recovered. They are synced before the recovery point passes
their markers.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from struct import Struct

from moldau.log import names
from moldau.log.disk_errors import NotWrittenYet
from moldau.log.index import Read, read_waiting
from moldau.log.transactions import Aborted
from moldau.runtime.ports import Disk, File

ENTRY = Struct(">hqqqq")
VERSION = 0
_READ_ENTRIES = 128


class AbortedIndexes:
    """Of one log. `bases` are the base offsets of the segments that have an index."""

    __slots__ = ("_bases", "_disk", "_files", "_folder", "_unwritten")

    def __init__(self, disk: Disk, folder: str, bases: Iterable[int] = ()) -> None:
        self._disk = disk
        self._folder = folder
        self._bases = sorted(bases)
        self._files: dict[int, File] = {}
        self._unwritten: dict[int, list[Aborted]] = {}
        """Entries that there was no room for: their markers are in the log, so they count."""

    def __bool__(self) -> bool:
        return bool(self._bases)

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    def copy(self) -> AbortedIndexes:
        """For a search in a thread."""
        copy = AbortedIndexes(self._disk, self._folder, self._bases)
        copy._unwritten = {base_offset: list(entries) for base_offset, entries in self._unwritten.items()}
        return copy

    def relocate(self, folder: str) -> None:
        """The log's folder has another name now."""
        self._folder = folder
        for base_offset, file in self._files.items():
            file.path = self._path(base_offset)

    def below(self, end_offset: int) -> list[Aborted]:
        """All with records below an offset, wherever their markers are. Blocks: for a copy, in a thread."""
        entries = (entry for base in self._bases for entry in self._entries(base, 0, read_waiting))
        return [entry for entry in entries if entry.first_offset < end_offset]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def append(self, base_offset: int, aborted: Aborted) -> None:
        """The segment's marker has aborted a transaction. OSError: the entry counts, and is written by `drain`."""
        if base_offset not in self._bases:
            insort(self._bases, base_offset)
        self._unwritten.setdefault(base_offset, []).append(aborted)
        self.drain()

    def drain(self) -> None:
        """Write what could not be written before. OSError: not now either."""
        for base_offset, entries in list(self._unwritten.items()):
            file = self._file(base_offset, create=True)
            data = packed(entries)
            end = file.size()
            written = 0
            try:
                while written < len(data):
                    written += file.pwrite(data[written:], end + written)
            except OSError:
                file.truncate(end)
                raise
            del self._unwritten[base_offset]

    def collect(self, base_offset: int, offset: int, stop_offset: int, read: Read) -> list[tuple[int, int]]:
        """Producer and first offset of those with records in [offset, stop_offset), from a segment's index on."""
        found: list[tuple[int, int]] = []
        for base in self._bases[bisect_left(self._bases, base_offset) :]:
            if self._collect(base, offset, stop_offset, read, found):
                break
        return found

    def _collect(
        self, base_offset: int, offset: int, stop_offset: int, read: Read, found: list[tuple[int, int]]
    ) -> bool:
        """Whether no later entry can matter."""
        for entry in self._entries(base_offset, offset, read):
            if entry.first_offset < stop_offset:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= stop_offset:
                return True
        return False

    def _entries(self, base_offset: int, offset: int, read: Read) -> Iterator[Aborted]:
        """Those that do not end below an offset."""
        unwritten = self._unwritten.get(base_offset, ())
        file = self._file(base_offset, create=bool(unwritten))
        count = file.size() // ENTRY.size
        position = self._first_ending_at(file, count, offset, read)
        while position < count:
            taken = min(_READ_ENTRIES, count - position)
            data = read(file, taken * ENTRY.size, position * ENTRY.size)
            yield from (Aborted._make(fields[1:]) for fields in ENTRY.iter_unpack(data))
            position += taken
        yield from (entry for entry in unwritten if entry.last_offset >= offset)

    def _first_ending_at(self, file: File, count: int, offset: int, read: Read) -> int:
        """The first entry that does not end below an offset."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack(read(file, ENTRY.size, middle * ENTRY.size))[3] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def reset(self, base_offset: int) -> None:
        """A segment's index is made anew, or its segment is gone."""
        self._forget(base_offset)
        with suppress(FileNotFoundError):
            self._disk.remove(self._path(base_offset))

    def mark_deleted(self, base_offset: int) -> list[str]:
        """Rename a removed segment's index out of the log; its new name, if there was one."""
        path = self._path(base_offset)
        self._forget(base_offset)
        try:
            self._disk.rename(path, path + names.DELETED)
        except FileNotFoundError:
            return []
        return [names.file_name(base_offset, names.TRANSACTION_INDEX + names.DELETED)]

    def adopt(self, base_offsets: Iterable[int]) -> None:
        """Compacted segments have come into their place, some of them with an index."""
        for base_offset in base_offsets:
            if self._disk.exists(self._path(base_offset)):
                insort(self._bases, base_offset)

    def cut_off(self, next_offset: int, segment_bases: Container[int]) -> None:
        """The log was truncated: entries of markers that are gone go too."""
        for base_offset in self.bases:
            if base_offset not in segment_bases or base_offset >= next_offset:
                self.reset(base_offset)
                continue
            file = self._file(base_offset, create=True)
            count = file.size() // ENTRY.size
            kept = self._first_ending_at(file, count, next_offset, read_waiting)
            if kept < count:
                file.truncate(kept * ENTRY.size)

    def sync(self, base_offset: int) -> None:
        """fsync of a segment's index, if it has one. Blocks. NotWrittenYet where entries wait for room."""
        if base_offset in self._unwritten:
            raise NotWrittenYet(errno.ENOSPC, "No space left on device", self._path(base_offset))
        file = self._files.get(base_offset)
        if file is not None:
            file.sync()

    def _forget(self, base_offset: int) -> None:
        self._unwritten.pop(base_offset, None)
        file = self._files.pop(base_offset, None)
        if file is not None:
            file.close()
        if base_offset in self._bases:
            self._bases.remove(base_offset)

    def _file(self, base_offset: int, *, create: bool = False) -> File:
        file = self._files.get(base_offset)
        if file is None:
            file = self._files[base_offset] = self._disk.open(self._path(base_offset), create=create)
        return file

    def _path(self, base_offset: int) -> str:
        return f"{self._folder}/{names.file_name(base_offset, names.TRANSACTION_INDEX)}"


def packed(entries: Iterable[Aborted]) -> bytes:
    """The content of an index."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def is_whole(disk: Disk, folder: str, base_offset: int, end_offset: int) -> bool:
    """Whether the index of a segment, which ends at an offset, holds whole entries that ascend. Blocks."""
    data = disk.read(f"{folder}/{names.file_name(base_offset, names.TRANSACTION_INDEX)}")
    if len(data) % ENTRY.size:
        return False
    last = base_offset - 1
    for version, producer_id, first_offset, last_offset, _ in ENTRY.iter_unpack(data):
        if version != VERSION or producer_id < 0 or first_offset >= last_offset:
            return False
        if not last < last_offset < end_offset:
            return False
        last = last_offset
    return True
