"""The disk port of one life of a simulated host. What a crash leaves of its writes is told in `platter`.

A file is looked up by its path at every use, as a real one is whose descriptor was closed behind the scenes:
whoever goes on to use a file after its name has changed is found out.

`stalls` counts the calls that wait on a disk and were made on the loop, where they would hold up everybody:
syncs and warm-ups outside of `Tasks.in_thread`.
"""

from __future__ import annotations

import errno
import posixpath
import zlib
from collections.abc import Callable

from moldau.runtime.ports import Buffer
from moldau.sim.drive import Drive
from moldau.sim.errors import os_error
from moldau.sim.loop import Life
from moldau.sim.platter import Folder, Inode, Node, Truncate, Write, files_below
from moldau.sim.trace import Trace

TEMPORARY_SUFFIX = ".tmp"
READS_WARM = 16
"""Reads that stay free of cold pages after some were brought in: an eviction is possible, but not at once."""

NAME_LENGTH_MAX = 255
"""As file systems have it."""


class SimDisk:
    def __init__(self, drive: Drive, life: Life, trace: Trace, wall_ms: Callable[[], int]) -> None:
        self.stalls: dict[str, int] = {}
        self.drive = drive
        self.wall_ms = wall_ms
        self._life = life
        self._trace = trace
        self._platter = drive.platter

    # Operations that every call goes through

    def begin(self, kind: str, path: str, *details: object) -> None:
        self._life.check()
        self._trace.record(self._life.host, kind, path, *details)

    def change(self, work: Callable[[], None]) -> None:
        """Make a change, unless the host is to crash in it: then the seed says whether before or after."""
        if not self.drive.crash_due():
            work()
            return
        if self.drive.random.chance(0.5):
            work()
        self.drive.crash_now()

    def blocking(self, kind: str) -> None:
        if not self._life.in_thread:
            self.stalls[kind] = self.stalls.get(kind, 0) + 1

    # The port

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.begin("open", path, create)
        if self._platter.find(path) is None and create:
            self.drive.operate("write", path)
            folder, name = self._platter.parent(path)
            inode = Inode(modified_ms=self.wall_ms())
            self.change(lambda: self._platter.name((folder, name, inode)))
        self._platter.file(path)
        return SimFile(self, path)

    def exists(self, path: str) -> bool:
        self._life.check()
        return self._platter.find(path) is not None

    def size(self, path: str) -> int:
        self._life.check()
        return len(self._platter.file(path).content)

    def modified_ms(self, path: str) -> int:
        self._life.check()
        node = self._platter.find(path)
        return (node or self._platter.file(path)).modified_ms

    def list(self, folder: str) -> list[str]:
        self._life.check()
        return sorted(self._platter.folder(folder).entries)

    def is_folder(self, path: str) -> bool:
        self._life.check()
        return isinstance(self._platter.find(path), Folder)

    def make_folder(self, path: str) -> None:
        self.begin("make_folder", path)
        whole = posixpath.normpath("/" + path)
        node = self._platter.find(whole)
        if isinstance(node, Inode):
            raise os_error(errno.EEXIST, path)
        if node is None:
            self.make_folder(posixpath.dirname(whole))
            folder, name = self._platter.parent(whole)
            if len(name) > NAME_LENGTH_MAX:
                raise os_error(errno.ENAMETOOLONG, path)
            made = Folder(modified_ms=self.wall_ms())
            self.change(lambda: self._platter.name((folder, name, made)))

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source, target)
        node = self._platter.find(source) or self._platter.file(source)
        old_folder, old_name = self._platter.parent(source)
        new_folder, new_name = self._platter.parent(target)
        replaced = self._platter.find(target)
        if replaced is node:
            return
        _check_replaceable(node, replaced, target)
        self.change(
            lambda: self._platter.name((old_folder, old_name, None), (new_folder, new_name, node)),
        )
        if replaced is not None:
            self._freed(replaced)

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        inode = self._platter.file(path)
        self._unlink(path, inode)

    def remove_tree(self, folder: str) -> None:
        self.begin("remove_tree", folder)
        top = self._platter.folder(folder)
        for name, node in sorted(top.entries.items()):
            path = posixpath.join(folder, name)
            if isinstance(node, Folder):
                self.remove_tree(path)
            else:
                self._unlink(path, node)
        self._unlink(folder, top)

    def _unlink(self, path: str, node: Node) -> None:
        folder, name = self._platter.parent(path)
        self.change(lambda: self._platter.name((folder, name, None)))
        self._freed(node)

    def _freed(self, node: Node) -> None:
        self._platter.used_bytes -= sum(len(inode.content) for inode in files_below(node))

    def read(self, path: str) -> bytes:
        self.begin("read", path)
        inode = self._platter.file(path)
        self.drive.operate("read", path)
        return bytes(inode.content)

    def write_atomic(self, path: str, data: bytes) -> None:
        """The same steps as on a real disk, each of which can fail."""
        temporary = path + TEMPORARY_SUFFIX
        try:
            file = self.open(temporary, create=True)
            file.truncate(0)
            position = 0
            while position < len(data):
                position += file.pwrite(data[position:], position)
            file.sync()
            self.rename(temporary, path)
        except OSError:
            if self.exists(temporary):
                self.remove(temporary)
            raise
        self.sync_folder(posixpath.dirname(path))

    def sync_folder(self, folder: str) -> None:
        self.begin("sync_folder", folder)
        self.blocking("sync_folder")
        node = self._platter.folder(folder)
        self.drive.operate("sync", folder)
        self.change(lambda: self._platter.sync_folder(node))

    def lock(self, path: str) -> SimLock:
        self.begin("lock", path)
        if self.drive.locks.get(path) == self._life.number:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        self.open(path, create=True)
        self.drive.locks[path] = self._life.number
        return SimLock(self.drive, path, self._life)

    def free_bytes(self, folder: str) -> int:
        self._life.check()
        self._platter.folder(folder)
        return self.drive.free_bytes()

    def total_bytes(self, folder: str) -> int:
        self._life.check()
        self._platter.folder(folder)
        return self.drive.total_bytes()


class SimLock:
    def __init__(self, drive: Drive, path: str, life: Life) -> None:
        self._drive = drive
        self._path = path
        self._life = life
        self._held = True

    def release(self) -> None:
        self._life.check()
        if self._held:
            self._held = False
            del self._drive.locks[self._path]


class SimFile:
    nowait = True

    def __init__(self, disk: SimDisk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._drive = disk.drive
        self._platter = disk.drive.platter
        self._closed = False

    def pwrite(self, data: Buffer, position: int) -> int:
        inode = self._begin("pwrite", position, len(data), zlib.crc32(data))
        self._drive.operate("write", self.path)
        grown = max(0, position + len(data) - max(len(inode.content), position))
        count = len(data) - grown + self._drive.room_for(grown)
        if count == 0 and data:
            raise os_error(errno.ENOSPC, self.path)
        if count > 1 and self._drive.random.chance(self._drive.faults.short_write_rate):
            count = 1 + self._drive.random.randrange(count)
        self._change(inode, Write(position, bytes(memoryview(data).cast("B")[:count])))
        return count

    def pread(self, length: int, position: int) -> bytes:
        inode = self._begin("pread", position, length)
        self._drive.operate("read", self.path)
        inode.reads_warm = READS_WARM
        return _part(inode, position, length)

    def pread_nowait(self, length: int, position: int) -> bytes:
        inode = self._begin("pread_nowait", position, length)
        if self._is_cold(inode):
            raise BlockingIOError(errno.EAGAIN, "the page is not cached", self.path)
        self._drive.operate("read", self.path)
        return _part(inode, position, length)

    def is_cached(self, position: int, length: int) -> bool:
        return not self._is_cold(self._begin("is_cached", position, length))

    def warm(self, position: int, length: int) -> None:
        inode = self._begin("warm", position, length)
        self._disk.blocking("warm")
        self._drive.operate("read", self.path)
        inode.reads_warm = READS_WARM

    def size(self) -> int:
        return len(self._begin("size").content)

    def truncate(self, size: int) -> None:
        inode = self._begin("truncate", size)
        self._drive.operate("write", self.path)
        self._change(inode, Truncate(size))

    def sync(self) -> None:
        inode = self._begin("sync")
        self._disk.blocking("sync")
        try:
            self._drive.operate("sync", self.path)
        except OSError:
            self._platter.doubt(inode)
            raise
        self._disk.change(inode.sync)

    def rename(self, target: str) -> None:
        self._disk.rename(self.path, target)
        self.path = target

    def close(self) -> None:
        self._closed = True

    def _begin(self, kind: str, *details: object) -> Inode:
        self._disk.begin(kind, self.path, *details)
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        return self._platter.file(self.path)

    def _change(self, inode: Inode, change: Write | Truncate) -> None:
        before = len(inode.content)
        self._disk.change(lambda: inode.change(change))
        self._platter.used_bytes += len(inode.content) - before
        inode.modified_ms = self._disk.wall_ms()

    def _is_cold(self, inode: Inode) -> bool:
        if inode.reads_warm:
            inode.reads_warm -= 1
            return False
        return self._drive.random.chance(self._drive.faults.cold_rate)


def _part(inode: Inode, position: int, length: int) -> bytes:
    with memoryview(inode.content) as view:
        return bytes(view[position : position + length])


def _check_replaceable(node: Node, replaced: Node | None, target: str) -> None:
    number = 0
    if isinstance(node, Folder):
        if isinstance(replaced, Inode):
            number = errno.ENOTDIR
        elif replaced is not None and replaced.entries:
            number = errno.ENOTEMPTY
    elif isinstance(replaced, Folder):
        number = errno.EISDIR
    if number:
        raise os_error(number, target)
