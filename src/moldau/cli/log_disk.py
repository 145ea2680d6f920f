"""The Disk port over the operating system, for reading only: whatever would change something fails with EROFS.

Files are opened without the right to write, so folders of other users, read-only mounts and the folder of a
running broker can be looked at. A lock is only probed, shared, for a moment.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

from moldau.runtime.ports import Buffer

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "opened for reading only", path)


class ReadOnlyFile:
    """Opened at the first read."""

    __slots__ = ("_fd", "path")
    nowait = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def _descriptor(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.path, _FLAGS)
        return self._fd

    def pread(self, length: int, position: int) -> bytes:
        fd = self._descriptor()
        if sys.platform == "win32":
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, length)
        else:  # noqa: RET505 (the type checker leaves out a platform's branch, not what follows it)
            return os.pread(fd, length, position)

    def pread_nowait(self, length: int, position: int) -> bytes:
        return self.pread(length, position)

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def warm(self, position: int, length: int) -> None:
        pass

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def pwrite(self, data: Buffer, position: int) -> int:
        _refuse(self.path)

    def truncate(self, size: int) -> None:
        _refuse(self.path)

    def rename(self, target: str) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)


class ReadOnlyDisk:
    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        if not os.path.exists(path):
            if create:
                _refuse(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return ReadOnlyFile(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def occupied(self, path: str) -> int:
        """The bytes that a file takes on the disk, where it is sparse; else its size."""
        found = os.stat(path)
        return min(found.st_size, getattr(found, "st_blocks", found.st_size) * 512)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def lock(self, path: str) -> ReadOnlyLock:
        """BlockingIOError where a broker holds it: Moldau's by `flock`, Kafka's by a POSIX lock."""
        fd = os.open(path, _FLAGS)
        try:
            if sys.platform == "win32":
                try:
                    msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
                except PermissionError:
                    raise BlockingIOError(errno.EAGAIN, "held by another process", path) from None
            else:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return ReadOnlyLock(fd)

    def free_bytes(self, folder: str) -> int:
        import shutil

        return shutil.disk_usage(folder).free

    def total_bytes(self, folder: str) -> int:
        import shutil

        return shutil.disk_usage(folder).total

    def make_folder(self, path: str) -> None:
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        _refuse(source)

    def remove(self, path: str) -> None:
        _refuse(path)

    def remove_tree(self, folder: str) -> None:
        _refuse(folder)

    def write_atomic(self, path: str, data: bytes) -> None:
        _refuse(path)

    def sync_folder(self, folder: str) -> None:
        _refuse(folder)


class ReadOnlyLock:
    """Given up by closing the file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
