"""The world as ports: everything that is not a pure computation comes in through one of these.

`runtime.real` implements them over the operating system, `sim` over a seeded world with virtual time. One
contract suite (tests/contract) runs over both. No module outside `runtime.real` and the edges (cli, testing, spark)
reads a clock, draws a random number, opens a file or a socket, or starts a thread.

Rules that hold for every implementation:
- All of it is used from the loop's thread, except what is handed to `Tasks.in_thread` or `Tasks.in_child`.
- Operating errors are `OSError`s with a true `errno` (ENOSPC, EIO, ECONNRESET, ...).
- `BlockingIOError` means "not now": a socket that is not ready, a page that is not cached, a lock that is
  held.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from moldau.runtime.tls import TlsContext, TlsSettings, TlsStream

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back; for time-outs and durations."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump. For record timestamps and what people read."""
        ...


class Random(Protocol):
    def fork(self, label: str) -> Random:
        """A stream of its own, independent of how much the others draw."""
        ...

    def random(self) -> float: ...
    def randrange(self, stop: int) -> int: ...
    def bytes(self, length: int) -> bytes: ...
    def uuid(self) -> uuid.UUID: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Tasks(Protocol):
    """The event loop. Callbacks run in the order in which they became due."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...
    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine beside the caller. A failure that nobody awaits is logged, never lost."""
        ...

    def in_thread(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Run blocking work (fsync, a cold read) off the loop; the future resolves on the loop."""
        ...

    async def in_child(self, work: Callable[..., T], *args: Any, report: Callable[[Any], object]) -> T:
        """Run `work(child, *args)` in a process of its own, at low priority: what computes for long.

        `work` is a function of a module, called with a `Child`; arguments, reports and the result are values
        that can be pickled. Reports arrive on the loop, in order, and all of them before the result. OSError
        is raised as it is; `ChildFailed` says what else was raised, or that the process died. Cancelling ends
        the process, and returns when it is gone. It never outlives this process, and may do more work after this one.
        """
        ...

    async def sleep(self, delay_s: float) -> None: ...


class ChildFailed(Exception):
    """Work in a child process failed, other than by an operating error."""


@dataclass(frozen=True, slots=True)
class Child:
    """The world of `Tasks.in_child`'s work. Everything in it may block."""

    disk: Disk
    clock: Clock
    sleep: Callable[[float], object]
    report: Callable[[Any], object]
    """Tell the process that asked for the work how far it has come."""


class File(Protocol):
    """One file, by position. It is opened at first use and may be closed behind the scenes when too many are
    open.

    So whoever removes a file, or renames it by its path, closes it first and opens it again under its new name.
    """

    path: str
    nowait: bool
    """Whether it can be told what is cached: else `pread_nowait` waits for the disk, and `is_cached` is always true."""

    def pwrite(self, data: Buffer, position: int) -> int:
        """Write to the page cache; returns the bytes written (a short write is the caller's to handle)."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes, fewer at the end of the file. May block on the disk."""
        ...

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray:
        """Like `pread`, but BlockingIOError where a page is not cached, if `nowait`. Fewer bytes only at the end of the
        file.

        A bytearray where that saves a copy: preadv fills a buffer that exists.
        """
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether `sendfile` of this range would not wait on the disk (a probe, not a promise)."""
        ...

    def warm(self, position: int, length: int) -> None:
        """Bring a range into the page cache. Blocks: call it through `Tasks.in_thread`."""
        ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fsync. Blocks: call it through `Tasks.in_thread`."""
        ...

    def rename(self, target: str) -> None:
        """Give it another name, under which it goes on to be used. OSError: it has the old one still."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Folders and files. `write_atomic` is the only way to change a small file that must never be seen
    half-written."""

    def open(self, path: str, *, create: bool = False) -> File:
        """A file for reading and writing; FileNotFoundError where it is absent and not to be created."""
        ...

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def is_folder(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None:
        """With its parents; no error where it exists."""
        ...

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, folder: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a whole file: temporary file, fsync, rename, fsync of the folder. All or nothing after a
        crash."""
        ...

    def sync_folder(self, folder: str) -> None: ...

    def lock(self, path: str) -> FileLock:
        """Hold a lock file until released or the process dies; BlockingIOError where another holds it."""
        ...

    def free_bytes(self, folder: str) -> int: ...
    def total_bytes(self, folder: str) -> int: ...


class Stream(Protocol):
    """One connected byte stream, non-blocking. `recv_into`, `send` and `sendmsg` are the socket's own.

    Sending takes as many bytes as there is room for, which may be fewer than offered; BlockingIOError when
    there is no room. A connection that the other side has reset raises ConnectionError.
    """

    local: Address
    peer: Address

    @property
    def recv_into(self) -> Callable[[Any], int]:
        """Fill a buffer; 0 at the end of the stream; BlockingIOError when nothing is there."""
        ...

    @property
    def send(self) -> Callable[[Buffer], int]: ...

    @property
    def sendmsg(self) -> Callable[[Sequence[Buffer]], int]:
        """Send several buffers with one call; returns the bytes taken."""
        ...

    def send_more(self, data: Buffer) -> int:
        """Like `send`, when more follows at once: the system may hold it back to fill a packet."""
        ...

    def sendfile(self, file: File, position: int, length: int) -> int:
        """Send from a file without passing the bytes through the process, where the system can.

        Returns the bytes taken; 0 only at the end of the file.
        """
        ...

    def watch_readable(self, callback: Callable[[], object]) -> None:
        """Call back on the loop, again and again, while there is something to receive (or the end of the
        stream)."""
        ...

    def unwatch_readable(self) -> None: ...

    def watch_writable(self, callback: Callable[[], object]) -> None:
        """Call back on the loop, again and again, while there is room to send (or the connection is
        broken)."""
        ...

    def unwatch_writable(self) -> None: ...
    def close(self) -> None:
        """Stops watching and closes; twice is once."""
        ...


class Listener(Protocol):
    address: Address

    def close(self) -> None: ...


class Net(Protocol):
    @property
    def accepted_max(self) -> int:
        """Accepted streams that may be open at once. With more, there would be no descriptors for files; it is for
        those who accept to see to that."""
        ...

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        """Serve a port (0: any free one; host "": every interface). OSError with EADDRINUSE, EADDRNOTAVAIL,
        EACCES says what is wrong."""
        ...

    def listen_tls(
        self, host: str, port: int, accept: Callable[[TlsStream], None], context: Callable[[], TlsContext]
    ) -> Listener:
        """The same for streams that need a handshake, which is up to `accept` to begin. Each goes by the context of
        its arrival."""
        ...

    async def connect(
        self, host: str, port: int, *, timeout_s: float, tls: TlsContext | None = None
    ) -> Stream:
        """Connect to a name or address. ConnectionRefusedError where nobody listens, TimeoutError when it
        takes too long, OSError with EHOSTUNREACH where the name is not known; with `tls`, TlsError where the handshake
        fails."""
        ...

    def tls_context(self, settings: TlsSettings) -> TlsContext:
        """Make keys and certificates ready, which takes milliseconds. TlsSettingsError says why they do not serve."""
        ...

    def tls_check(self, server: TlsContext, client: TlsContext) -> None:
        """That one can connect to the other, in memory; TlsSettingsError says why not. Takes milliseconds."""
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """The five ports together, as a node gets them."""

    clock: Clock
    random: Random
    tasks: Tasks
    net: Net
    disk: Disk
