"""The two sparse indexes of a segment: offset -> file position, timestamp -> offset.

Both are files of fixed-size entries that ascend in both fields. Entries are appended through a small buffer
in memory and searched by bisection on the file, so an index costs the same memory whatever its length. The
file is always a prefix of the index: what is lost at a crash is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from struct import Struct

from moldau.runtime.ports import Disk, File

Read = Callable[[File, int, int], bytes | bytearray]
"""Read (file, length, position): waiting for the disk, or not."""

PENDING_ENTRIES_MAX = 32
_BLOCK_ENTRIES = 512
"""Bisection goes down to a block of this size (a page or two), which is read at once."""

GUESSES_MAX = 2
GUESSED_ENTRIES_MIN = 16 * _BLOCK_ENTRIES
_GUESS_BEYOND = _BLOCK_ENTRIES // 2 - 16
"""From how many entries on it is guessed where one lies, and how often: first before, then behind the place, so that a
block is left in between. A wrong guess is one read more."""

OFFSET_ENTRY = Struct(">ii")
"""Last offset of a batch relative to the segment's base offset, and the batch's position in the file."""
TIME_ENTRY = Struct(">qi")
"""The largest timestamp so far, and the offset (relative) of the batch that has it."""


def read_nowait(file: File, length: int, position: int) -> bytes | bytearray:
    return file.pread_nowait(length, position)


def read_waiting(file: File, length: int, position: int) -> bytes:
    return file.pread(length, position)


class Index:
    """One index file. `count` includes the entries that are not yet in the file."""

    __slots__ = ("_disk", "_ends", "_file", "_pending", "_written", "count", "entry", "path")

    def __init__(self, disk: Disk, path: str, entry: Struct, written: int = 0) -> None:
        self._disk = disk
        self.path = path
        self.entry = entry
        self._file: File | None = None
        self._ends: tuple[int, tuple[tuple[int, int], tuple[int, int]]] | None = None
        """The first and the last of so many entries in the file, where they were asked for."""
        self._written = written
        self._pending = bytearray()
        self.count = written

    @classmethod
    def of_file(cls, disk: Disk, path: str, entry: Struct) -> Index:
        """What a file holds. A last entry that was cut off is ignored; no file is an empty index."""
        try:
            size = disk.size(path)
        except FileNotFoundError:
            size = 0
        return cls(disk, path, entry, size // entry.size)

    @property
    def file(self) -> File:
        if self._file is None:
            # One that has entries is there, unless its segment was removed: it must not come back.
            self._file = self._disk.open(self.path, create=self._written == 0)
        return self._file

    def rename(self, target: str) -> None:
        """The index is used on under another name."""
        if self._file is not None:
            self._file.rename(target)
        else:
            self._disk.rename(self.path, target)
        self.path = target

    def relocate(self, path: str) -> None:
        """Its folder has another name now."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, first: int, second: int) -> None:
        self._pending += self.entry.pack(first, second)
        self.count += 1
        if self.count - self._written >= PENDING_ENTRIES_MAX:
            try:
                self.drain()
            except OSError:
                # The batch that this entry points to is in the log: its append has succeeded. The entries
                # stay in memory for the next attempt; rolling and closing insist.
                pass

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def drain(self) -> None:
        """Write what is pending. OSError leaves the index as it was."""
        pending = self._pending
        if pending:
            position = self._written * self.entry.size
            written = 0
            try:
                while written < len(pending):
                    written += self.file.pwrite(pending[written:], position + written)
            except OSError:
                with suppress(OSError):  # what is left over is written over the next time, or ignored
                    self.file.truncate(position)
                raise
            self._written += len(pending) // self.entry.size
            self._pending = bytearray()

    def last(self, read: Read) -> tuple[int, int] | None:
        count = self.count
        return self.entry_at(count - 1, read) if count else None

    def floor(self, key: int, read: Read, field: int = 0) -> tuple[int, int] | None:
        """The last entry whose field (0 or 1) is not above the key."""
        low, high = 0, self.count
        entry = self.entry
        size = entry.size
        written = self._written
        if high > written and entry.unpack_from(self._pending)[field] <= key:
            low = written
        else:
            low, high = self._block_around(key, read, field)
        if high == low:
            return None
        if low == written:
            block, base = self._pending, written
        else:
            block, base = bytearray(read(self.file, (high - low) * size, low * size)), low
        while high - low > 0:
            middle = (low + high) // 2
            if entry.unpack_from(block, (middle - base) * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        if low == base:
            return None
        found: tuple[int, int] = entry.unpack_from(block, (low - 1 - base) * size)
        return found

    def _block_around(self, key: int, read: Read, field: int) -> tuple[int, int]:
        """Which entries of the file to read: the last one that is not above the key is among them, if there is one.

        In a long index it is looked for where it lies if entries are spread evenly, which they often are.
        """
        low, high = 0, self._written
        guesses_left = 0
        low_key = high_key = key
        if high > GUESSED_ENTRIES_MIN:
            guesses_left = GUESSES_MAX
            first, last = self._first_and_last(read)
            low_key, high_key = first[field], last[field]
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if guesses_left and low_key <= key < high_key:
                guess = low + (high - low) * (key - low_key) // (high_key - low_key)
                beyond = _GUESS_BEYOND if guesses_left % 2 else -_GUESS_BEYOND
                middle = max(low + 1, min(guess + beyond, high - 1))
                guesses_left -= 1
            found = self.entry_at(middle, read)[field]
            if found <= key:
                low, low_key = middle, found
            else:
                high, high_key = middle, found
        return low, high

    def _first_and_last(self, read: Read) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the file's entries."""
        if self._ends is None or self._ends[0] != self._written:
            self._ends = self._written, (self.entry_at(0, read), self.entry_at(self._written - 1, read))
        return self._ends[1]

    def truncate_to(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count < self._written:
            self.file.truncate(count * self.entry.size)
            self._written = count
            self._ends = None
            self._pending = bytearray()
        else:
            del self._pending[(count - self._written) * self.entry.size :]
        self.count = min(count, self.count)

    def count_below(self, key: int, read: Read, field: int) -> int:
        """How many entries have a field below the key."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry_at(middle, read)[field] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def entry_at(self, index: int, read: Read) -> tuple[int, int]:
        size = self.entry.size
        if index >= self._written:
            found: tuple[int, int] = self.entry.unpack_from(self._pending, (index - self._written) * size)
        else:
            found = self.entry.unpack(read(self.file, size, index * size))
        return found
