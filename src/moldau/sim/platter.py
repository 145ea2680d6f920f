"""What a simulated disk holds: as programs see it, and as it would be after a power cut.

Every file has its content and the part of it that is durable; every folder its entries and those that are
durable. Changes wait in order (a file's writes with the file, changes of names in a journal) until a sync
makes them durable. At a crash the seed decides what became of those that wait:
- a file's writes are all there, all lost, there up to some point, or each there, lost or torn on its own. A
  torn write left some of its sectors. Bytes that were never written before something behind them are zeros;
- of a folder's changes the first few are there.
A file whose name was not made durable is gone, however well its content was synced.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from moldau.sim.errors import os_error
from moldau.sim.random import SimRandom

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Write:
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    size: int


@dataclass(slots=True, eq=False)
class Inode:
    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    waiting: list[Write | Truncate] = field(default_factory=list)
    modified_ms: int = 0
    reads_warm: int = 0
    """Reads that are sure to find their pages, after some were brought in."""

    def change(self, change: Write | Truncate) -> None:
        _apply(self.content, change)
        self.waiting.append(change)

    def sync(self) -> None:
        self.settle(self.waiting)

    def settle(self, changes: list[Write | Truncate]) -> None:
        """These changes reach the disk; the others that waited never will."""
        for change in changes:
            _apply(self.durable, change)
        self.waiting.clear()


@dataclass(slots=True, eq=False)
class Folder:
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    modified_ms: int = 0


Node = Inode | Folder


@dataclass(frozen=True, slots=True)
class Naming:
    """One change of names that happens as a whole: an entry's folder, its name, and what it becomes."""

    changes: tuple[tuple[Folder, str, Node | None], ...]

    def touches(self, folders: list[Folder]) -> bool:
        return any(folder is other for folder, _, _ in self.changes for other in folders)


class Platter:
    """The tree of folders and files. Paths are absolute, with `/`."""

    def __init__(self, random: SimRandom) -> None:
        self.root = Folder()
        self.used_bytes = 0
        self._random = random
        self._journal: list[Naming] = []
        self._found: dict[str, Node] = {}

    def replace(self, path: str, *files: str) -> None:
        """Another disk is in the place of a folder, with nothing but some empty files."""
        folder = self.folder(path)
        self.used_bytes -= sum(len(inode.content) for inode in files_below(folder))
        fresh: dict[str, Node] = {name: Inode() for name in files}
        folder.entries, folder.durable = dict(fresh), fresh
        self._journal = [naming for naming in self._journal if not naming.touches([folder])]
        self._found.clear()

    # Names

    def find(self, path: str) -> Node | None:
        node = self._found.get(path)
        if node is None:
            node = self._walk(path)
            if node is not None:
                self._found[path] = node
        return node

    def _walk(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.entries.get(part)
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        head, name = posixpath.split(posixpath.normpath("/" + path))
        return self.folder(head), name

    def name(self, *changes: tuple[Folder, str, Node | None]) -> None:
        """Change names; durable after a sync of the folder."""
        for folder, name, node in changes:
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
        self._journal.append(Naming(changes))
        self._found.clear()

    def sync_folder(self, folder: Folder) -> None:
        """Make the folder's changes durable, and the earlier ones of other folders that they share a rename
        with."""
        folders = [folder]
        due: list[Naming] = []
        for naming in reversed(self._journal):
            if naming.touches(folders):
                due.append(naming)
                folders += [other for other, _, _ in naming.changes]
        for naming in reversed(due):
            _settle(naming)
        done = set(map(id, due))
        self._journal = [naming for naming in self._journal if id(naming) not in done]

    # A crash

    def crash(self) -> None:
        self._settle_names()
        self._found.clear()
        self.used_bytes = 0
        for inode in _restore(self.root):
            inode.settle(self._survivors(inode))
            inode.content[:] = inode.durable
            inode.reads_warm = 0
            self.used_bytes += len(inode.content)

    def doubt(self, inode: Inode) -> None:
        """A sync has failed. As on Linux, the pages count as clean afterwards: programs go on to see them,
        some of them are on the disk, and no later sync writes the others."""
        inode.settle([change for change in inode.waiting if self._random.chance(0.5)])

    def _settle_names(self) -> None:
        counts: dict[int, int] = {}
        for naming in self._journal:
            owner = id(naming.changes[-1][0])
            counts[owner] = counts.get(owner, 0) + 1
        kept = {owner: self._random.randrange(count + 1) for owner, count in counts.items()}
        for naming in self._journal:
            owner = id(naming.changes[-1][0])
            if kept[owner] > 0:
                kept[owner] -= 1
                _settle(naming)
        self._journal.clear()

    def _survivors(self, inode: Inode) -> list[Write | Truncate]:
        waiting = inode.waiting
        if not waiting:
            return []
        fate = self._random.randrange(4)
        if fate == 0:
            return waiting
        if fate == 1:
            return []
        if fate == 2:
            count = self._random.randrange(len(waiting))
            return waiting[:count] + self._torn(waiting[count])
        return [part for change in waiting for part in self._one_survivor(change)]

    def _one_survivor(self, change: Write | Truncate) -> list[Write | Truncate]:
        fate = self._random.randrange(3)
        if fate == 0:
            return [change]
        return self._torn(change) if fate == 1 else []

    def _torn(self, change: Write | Truncate) -> list[Write | Truncate]:
        """Some sectors of a write: the first ones, or any."""
        if isinstance(change, Truncate):
            return []
        sectors = list(_sectors(change))
        if self._random.chance(0.5):
            return list(sectors[: self._random.randrange(len(sectors) + 1)])
        return [sector for sector in sectors if self._random.chance(0.5)]


def _apply(content: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        if change.size <= len(content):
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
        return
    if change.position > len(content):
        content.extend(bytes(change.position - len(content)))
    content[change.position : change.position + len(change.data)] = change.data


def _settle(naming: Naming) -> None:
    for folder, name, node in naming.changes:
        if node is None:
            folder.durable.pop(name, None)
        else:
            folder.durable[name] = node


def _restore(folder: Folder) -> Iterator[Inode]:
    """Make the durable entries the ones that programs see; all files below, in order."""
    folder.entries = dict(folder.durable)
    for node in folder.entries.values():
        if isinstance(node, Folder):
            yield from _restore(node)
        else:
            yield node


def _sectors(write: Write) -> Iterator[Write]:
    start = 0
    while start < len(write.data):
        position = write.position + start
        stop = start + SECTOR_BYTES - position % SECTOR_BYTES
        yield Write(position, write.data[start:stop])
        start = stop


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath("/" + path).split("/") if part]


def files_below(node: Node) -> Iterator[Inode]:
    if isinstance(node, Inode):
        yield node
    else:
        for entry in node.entries.values():
            yield from files_below(entry)
