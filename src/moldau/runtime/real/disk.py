"""Folders and files of the operating system.

Guarantees what the port says; in particular `write_atomic` returns after both the content and the name are
durable, unless the data are thrown away (`Features.syncs`). It uses one temporary name per path, so a path has one
writer at a time. Where a folder cannot be synced (Windows), renames are as durable as the system makes them.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from moldau.runtime.real.features import Features
from moldau.runtime.real.files import FilePool, RealFile, SeekingFile, open_files_bound

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TEMPORARY_SUFFIX = ".tmp"
CREATE_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class RealDisk:
    __slots__ = ("_features", "pool")

    def __init__(self, features: Features, *, open_files_max: int | None = None) -> None:
        self._features = features
        self.pool = FilePool(open_files_max or open_files_bound(), syncs=features.syncs)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if self._features.positional:
            file = RealFile(path, self.pool, nowait=self._features.read_nowait)
        else:
            file = SeekingFile(path, self.pool)
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            if not create:
                raise
            self.pool.open(file, create=True)
        else:
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, folder: str) -> None:
        import shutil  # slow to import, rarely needed

        shutil.rmtree(folder)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        try:
            with open(temporary, "wb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                self.pool.sync_descriptor(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        self.sync_folder(os.path.dirname(path) or ".")

    def sync_folder(self, folder: str) -> None:
        if sys.platform != "win32":
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if self._features.syncs:
                    os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, path: str) -> RealLock:
        fd = os.open(path, CREATE_FLAGS, 0o666)
        try:
            _lock_descriptor(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    def free_bytes(self, folder: str) -> int:
        if sys.platform == "win32":
            import shutil

            return shutil.disk_usage(folder).free
        else:  # noqa: RET505 (the type checker leaves out a platform's branch, not what follows it)
            volume = os.statvfs(folder)
            return volume.f_bavail * volume.f_frsize

    def total_bytes(self, folder: str) -> int:
        if sys.platform == "win32":
            import shutil

            return shutil.disk_usage(folder).total
        else:  # noqa: RET505 (as above)
            volume = os.statvfs(folder)
            return volume.f_blocks * volume.f_frsize

    def close(self) -> None:
        """Close the descriptors of the pool."""
        self.pool.close_all()


class RealLock:
    """Held by an open descriptor, so it ends with the process. The file itself stays: removing it would let
    two processes hold locks on two files of the same name."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _lock_descriptor(fd: int, path: str) -> None:
    if sys.platform == "win32":
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path) from None
    else:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # also against another broker of this process
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind that Apache Kafka takes
        except BlockingIOError:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path) from None
