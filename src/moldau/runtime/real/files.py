"""Open files, and the pool that bounds how many descriptors they hold.

A `RealFile` is a path until it is used; the pool then opens it, and closes the descriptor of one that was not
used lately when too many are open. The next use opens it again by its path.

How a descriptor is never closed under a running call, at no cost on the hot path: only the thread that made
the pool (the loop's) evicts. Its own calls use the descriptor as it is. Calls from any other thread pin the
file under the pool's lock, and pinned files are passed over. A thread that finds the pool full opens the file
for its one call, so there are never more descriptors than the bound and one per thread.

The pool does not keep a file alive: one that nobody has any more closes its descriptor by itself, in whatever thread
it is collected.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.base.limits import (
    CONNECTIONS_MIN,
    DESCRIPTORS_INTERNAL_MAX,
    DESCRIPTORS_INTERNAL_MIN,
    DESCRIPTORS_INTERNAL_SHARE,
)
from moldau.runtime.real.process import descriptor_limit

T = TypeVar("T")

if sys.platform == "darwin":
    import fcntl

OPEN_FILES_MAX = 4096
OPEN_FILES_MIN = 16

PROBE_STEP_BYTES = 128 * 1024
"""Linux reads ahead in pieces of this size by default, so one byte of each tells whether the piece was
read."""
WARM_CHUNK_BYTES = 1024 * 1024

OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NOWAIT_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

_get_ident = threading.get_ident
_fstat = os.fstat
_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", None)  # type: ignore[assignment]
_pwrite: Callable[[int, Any, int], int] = getattr(os, "pwrite", None)  # type: ignore[assignment]
_preadv: Callable[[int, Any, int, int], int] = getattr(os, "preadv", None)  # type: ignore[assignment]
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def open_files_bound() -> int:
    """Half of the descriptors that the process may have: the other half is for connections and all else."""
    return max(OPEN_FILES_MIN, min(OPEN_FILES_MAX, descriptor_limit() // 2))


def accepted_streams_bound() -> int:
    """Connections that may be accepted: what is left beside log files and internals, so that a crowd of clients takes
    no descriptor that a log needs.
    """
    limit = descriptor_limit()
    internal = max(
        DESCRIPTORS_INTERNAL_MIN, min(DESCRIPTORS_INTERNAL_MAX, limit // DESCRIPTORS_INTERNAL_SHARE)
    )
    return max(CONNECTIONS_MIN, limit - open_files_bound() - internal)


class FilePool:
    __slots__ = ("_gone", "_lock", "_open", "bound", "owner", "sync_descriptor")

    def __init__(self, bound: int, *, syncs: bool = True) -> None:
        self.bound = bound
        self.sync_descriptor: Callable[[int], object] = sync_descriptor if syncs else _leave_to_the_system
        self.owner = _get_ident()
        self._lock = threading.Lock()
        self._open: OrderedDict[weakref.ref[RealFile], None] = OrderedDict()
        self._gone: deque[weakref.ref[RealFile]] = deque()
        """Of files that were collected: noted without the lock, which that very thread may hold."""

    @property
    def open_count(self) -> int:
        with self._lock:
            self._forget_gone_locked()
            return len(self._open)

    def reference(self, file: RealFile) -> weakref.ref[RealFile]:
        reference = weakref.ref(file, self._gone.append)
        hash(reference)  # of one whose file is gone it cannot be asked for the first time
        return reference

    def _forget_gone_locked(self) -> None:
        while self._gone:
            self._open.pop(self._gone.popleft(), None)

    def open(self, file: RealFile, *, create: bool = False) -> None:
        with self._lock:
            self._open_locked(file, OPEN_FLAGS | os.O_CREAT if create else OPEN_FLAGS)

    def pin(self, file: RealFile) -> int:
        """A descriptor for a call from any thread, open until `unpin`."""
        with self._lock:
            if file.fd < 0:
                self._forget_gone_locked()
                if len(self._open) >= self.bound and _get_ident() != self.owner:
                    return _open_descriptor(file, OPEN_FLAGS)
                self._open_locked(file, OPEN_FLAGS)
            file.pins += 1
            file.used = True
            return file.fd

    def unpin(self, file: RealFile, fd: int) -> None:
        with self._lock:
            if fd != file.fd:
                os.close(fd)  # opened for this call only
                return
            file.pins -= 1
            if file.closed and not file.pins:
                self._close_locked(file)

    def close(self, file: RealFile) -> None:
        with self._lock:
            file.closed = True
            if not file.pins:
                self._close_locked(file)

    def rename(self, file: RealFile, target: str) -> None:
        """Under the lock, so that no thread looks for the file by the name that it just lost."""
        with self._lock:
            if not file.pins:
                self._close_locked(file)  # some systems do not rename what is open
            os.replace(file.path, target)
            file.path = target

    def close_all(self) -> None:
        with self._lock:
            for reference in list(self._open):
                file = reference()
                if file is not None and not file.pins:
                    self._close_locked(file)

    def _open_locked(self, file: RealFile, flags: int) -> None:
        mine = _get_ident() == self.owner
        self._forget_gone_locked()
        if mine:
            self._evict_locked(self.bound - 1)
        try:
            file.fd = _open_descriptor(file, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not mine:
                raise
            self._evict_locked(len(self._open) // 2)  # others use more descriptors than was expected
            file.fd = _open_descriptor(file, flags)
        self._open[file.reference] = None

    def _evict_locked(self, keep: int) -> None:
        """Second chance: a file that was used since the hand last passed goes to the end of the line."""
        chances = 2 * len(self._open)
        while len(self._open) > keep and chances:
            chances -= 1
            reference = next(iter(self._open))
            file = reference()
            if file is None:
                del self._open[reference]
            elif file.pins or file.used:
                file.used = False
                self._open.move_to_end(reference)
            else:
                self._close_locked(file)

    def _close_locked(self, file: RealFile) -> None:
        if file.fd >= 0:
            del self._open[file.reference]
            fd, file.fd = file.fd, -1
            os.close(fd)


class RealFile:
    """A file of the operating system, by position. See the module's head for who may call what from where."""

    __slots__ = (
        "__weakref__",
        "closed",
        "fd",
        "nowait",
        "owner",
        "path",
        "pins",
        "pool",
        "reference",
        "used",
    )

    def __init__(self, path: str, pool: FilePool, *, nowait: bool) -> None:
        self.path = path
        self.pool = pool
        self.owner = pool.owner
        self.nowait = nowait
        self.fd = -1
        self.pins = 0
        self.used = False
        self.closed = False
        self.reference = pool.reference(self)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.fd < 0 or _get_ident() != self.owner:
            return self.pinned(_pwrite, data, position)
        self.used = True
        return _pwrite(self.fd, data, position)

    def pread(self, length: int, position: int) -> bytes:
        if self.fd < 0 or _get_ident() != self.owner:
            return self.pinned(_pread, length, position)
        self.used = True
        return _pread(self.fd, length, position)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray:
        if not self.nowait:
            return self.pread(length, position)
        if self.fd < 0 or _get_ident() != self.owner:
            return self.pinned(self._pread_nowait, length, position)
        self.used = True
        return self._pread_nowait(self.fd, length, position)

    def _pread_nowait(self, fd: int, length: int, position: int) -> bytes | bytearray:
        buffer = bytearray(length)
        try:
            count = _preadv(fd, (buffer,), position, _NOWAIT)
        except OSError as error:
            if error.errno not in NOWAIT_UNSUPPORTED or position < 0:
                raise
            self.nowait = False  # this filesystem cannot tell
            return _pread(fd, length, position)
        if count == length:
            return buffer
        if position + count < os.fstat(fd).st_size:
            raise BlockingIOError(errno.EAGAIN, "only a part of the range is cached", self.path)
        del buffer[count:]
        return buffer

    def is_cached(self, position: int, length: int) -> bool:
        return not self.nowait or self.pinned(self._is_cached, position, length)

    def _is_cached(self, fd: int, position: int, length: int) -> bool:
        byte = (bytearray(1),)
        last = position + length - 1
        try:
            for probe in range(position, last, PROBE_STEP_BYTES):
                _preadv(fd, byte, probe, _NOWAIT)
            if length > 0:
                _preadv(fd, byte, last, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NOWAIT_UNSUPPORTED:
                raise
            self.nowait = False
        return True

    def warm(self, position: int, length: int) -> None:
        end = position + length
        while position < end:
            count = len(self.pread(min(WARM_CHUNK_BYTES, end - position), position))
            if not count:
                return
            position += count

    def size(self) -> int:
        if self.fd < 0 or _get_ident() != self.owner:
            return self.pinned(_size)
        return _fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        self.pinned(os.ftruncate, size)

    def sync(self) -> None:
        self.pinned(self.pool.sync_descriptor)

    def rename(self, target: str) -> None:
        self.pool.rename(self, target)

    def close(self) -> None:
        self.pool.close(self)

    def descriptor(self) -> int:
        """For one call that follows at once on the loop's thread: sendfile."""
        if self.fd < 0:
            self.pool.open(self)
        self.used = True
        return self.fd

    def pinned(self, call: Callable[..., T], *args: Any) -> T:
        """Run a call on a descriptor that cannot be closed under it, from whatever thread."""
        if self.fd >= 0 and _get_ident() == self.owner:
            self.used = True
            return call(self.fd, *args)
        fd = self.pool.pin(self)
        try:
            return call(fd, *args)
        finally:
            self.pool.unpin(self, fd)


class SeekingFile(RealFile):
    """For systems without pread and pwrite: the position is sought and used under the file's own lock."""

    __slots__ = ("_position_lock",)

    def __init__(self, path: str, pool: FilePool) -> None:
        super().__init__(path, pool, nowait=False)
        self._position_lock = threading.Lock()

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        count: int = self.pinned(self._sought, os.write, data, position)
        return count

    def pread(self, length: int, position: int) -> bytes:
        data: bytes = self.pinned(self._sought, os.read, length, position)
        return data

    def _sought(self, fd: int, call: Callable[[int, Any], Any], argument: Any, position: int) -> Any:
        with self._position_lock:
            os.lseek(fd, position, os.SEEK_SET)
            return call(fd, argument)


def _open_descriptor(file: RealFile, flags: int) -> int:
    if file.closed:
        raise ValueError(f"{file.path} is closed")
    return os.open(file.path, flags, 0o666)


def sync_descriptor(fd: int) -> None:
    if sys.platform == "darwin":  # its fsync stops at the drive's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def _leave_to_the_system(_fd: int) -> None:
    """A sync of what is thrown away."""


def _size(fd: int) -> int:
    return _fstat(fd).st_size
