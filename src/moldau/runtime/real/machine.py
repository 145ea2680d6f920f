"""What the processes of one machine share beside files: the boot clock, signs of life, and bells. And a thread of
one's own.

- `boot_s()` counts the seconds since the machine was started, also those for which it slept; all processes read the
  same.
- A `Lifeline` is a named pipe whose writing end its owner holds open. The kernel closes it the moment the process
  dies, however it dies; whoever listens (`Listener`) sees the end of the pipe on its event loop, without a thread
  that waits. It is never passed on: children that are started or forked do not hold it.
- A `Bell` is a named pipe that wakes its owner's loop when another process rings the bells of a folder with its
  label. A ring carries nothing and may be merged with others; one that is lost (its process died before it rang) is
  the owner's to make up for.
- An `OwnThread` does one piece of blocking work after the other, apart from the pool that syncs logs.

Where the system or the file system has no named pipes, `Lifeline.make` and `Bell.make` give None: leases and polling
remain.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
import uuid
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

BELL_PREFIX = "bell-"
UNFINISHED_SUFFIX = ".new"
READ_BYTES = 4096
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_held: weakref.WeakSet[_Pipe] = weakref.WeakSet()


def boot_id() -> str:
    """Which boot of the machine this is: another one has lost what only the page cache held. Where the system does not
    say, it is when the machine was booted, to the minute."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(int(time.time() - boot_s()) // 60)


def boot_s() -> float:
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class _Pipe:
    """A descriptor on a named pipe, which a forked child lets go of."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _held.add(self)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def _after_fork() -> None:
    """The child closes its copies. The loop's selector is still the parent's too: it is left alone."""
    for pipe in list(_held):
        if pipe.fd >= 0:
            os.close(pipe.fd)
            pipe.fd = -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _make_pipe(path: str) -> int | None:
    """Open under its name only once it is held: nobody finds it without its owner."""
    if not hasattr(os, "mkfifo"):
        return None
    unfinished = path + UNFINISHED_SUFFIX
    try:
        os.mkfifo(unfinished)
        fd = os.open(unfinished, os.O_RDWR | _FLAGS)
        os.rename(unfinished, path)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            return None  # a file system without named pipes
        raise
    return fd


class Lifeline(_Pipe):
    @classmethod
    def make(cls, path: str) -> Lifeline | None:
        fd = _make_pipe(path)
        return None if fd is None else cls(fd)


class Listener(_Pipe):
    """Calls back once, on the loop, when the owner of a lifeline is gone."""

    @classmethod
    def open(cls, path: str, on_end: Callable[[], object]) -> Listener | None:
        """None where the owner is gone already. On the loop's thread."""
        try:
            fd = os.open(path, os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return None
        listener = cls(fd, on_end)
        if listener._has_ended():
            listener.close()
            return None
        return listener

    def __init__(self, fd: int, on_end: Callable[[], object]) -> None:
        super().__init__(fd)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._readable)

    def close(self) -> None:
        if self.fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self.fd)
            super().close()

    def _has_ended(self) -> bool:
        try:
            return os.read(self.fd, READ_BYTES) == b""
        except BlockingIOError:
            return False

    def _readable(self) -> None:
        if self._has_ended():
            self.close()
            self._on_end()


class Bell(_Pipe):
    @classmethod
    def make(cls, folder: str, label: str, on_ring: Callable[[], object]) -> Bell | None:
        """On the loop's thread. The label is letters and digits."""
        path = os.path.join(folder, f"{BELL_PREFIX}{label}-{uuid.uuid4().hex}")
        fd = _make_pipe(path)
        return None if fd is None else cls(fd, path, on_ring)

    def __init__(self, fd: int, path: str, on_ring: Callable[[], object]) -> None:
        super().__init__(fd)
        self._path = path
        self._on_ring = on_ring
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._readable)

    def close(self) -> None:
        if self.fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self.fd)
            super().close()
            _unlink(self._path)

    def _readable(self) -> None:
        try:
            os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return
        self._on_ring()


def ring(folder: str, labels: Collection[str]) -> None:
    """Ring the bells with one of these labels, of whichever process; those of dead ones are removed."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(BELL_PREFIX):
            _, label, unique = name.split("-", 2)
            if label in labels and not unique.endswith(UNFINISHED_SUFFIX):
                _ring(os.path.join(folder, name))


def _ring(path: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody has it open for reading
            _unlink(path)
        return
    try:
        os.write(fd, b"!")
    except OSError:
        pass  # full: it will be woken anyway; or just closed
    finally:
        os.close(fd)


def sweep(folder: str) -> None:
    """Remove what dead processes have left; nobody is about to use it, except names that are half made."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if not name.endswith(UNFINISHED_SUFFIX) and not _is_held(path, is_bell=name.startswith(BELL_PREFIX)):
            _unlink(path)


def _is_held(path: str, *, is_bell: bool) -> bool:
    """Of a bell the reading end counts, and reading would take a ring away; of a lifeline the writing end does."""
    try:
        fd = os.open(path, (os.O_WRONLY if is_bell else os.O_RDONLY) | _FLAGS)
    except OSError as error:
        return error.errno != errno.ENXIO
    try:
        return is_bell or os.read(fd, 1) != b""
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def make_private_file(path: str) -> None:
    """For the user of this process alone, and so is what SQLite puts beside it. A file that is there keeps its
    permissions; where none can be made, whoever opens it hears why."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def make_pipe_folder(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def remove_pipe(path: str) -> None:
    """Take away the name of a lifeline; no error where it is gone."""
    _unlink(path)


class OwnThread:
    """Work is done whole and in order, also where its caller is cancelled meanwhile; work not begun then is dropped."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def close(self) -> None:
        """No more work; what is under way is finished, in its own time."""
        self._executor.shutdown(wait=False)
