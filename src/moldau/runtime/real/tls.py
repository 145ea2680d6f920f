"""TLS streams over own non-blocking sockets, by OpenSSL as Python has it.

A stream keeps what its port says, whatever OpenSSL does inside: a reader is called again while decrypted bytes are
left, though the socket has none; a buffer is filled over several records; a write that was not taken is to be offered
again with the same bytes first, as every caller does anyway. An end without a farewell is an end: frames have lengths.

The handshake computes in a thread, which does not hold the interpreter: a signature takes a millisecond, with a large
key six. STEPS_AT_ONCE at a time, in the order in which clients have spoken. A client that says nothing, or sends byte
by byte, takes no thread: a step begins when a whole record is there. How long and how many at once is the caller's.

Files are read and then encrypted: OpenSSL can leave encryption to the kernel (OP_ENABLE_KTLS, Python 3.12), where
`os.sendfile` would go past the process again; that is not built.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any

from moldau.runtime.ports import Address, Buffer, File
from moldau.runtime.real.tls_context import RealTlsContext
from moldau.runtime.tls import TlsEnded, TlsError

RECORD_BYTES = 16 * 1024
RECEIVE_BYTES_MAX = 256 * 1024
"""Decrypted in one call: some 0.3 ms."""
SEND_BYTES_MAX = 256 * 1024
FILE_PIECE_BYTES = 64 * 1024
STEPS_AT_ONCE = 2
STEPS_MAX = 32
"""Of one handshake: an honest one has three, unless its network cuts records short."""
LOOKS_MAX = 100
LOOK_PAUSE_S = 0.05
"""For the rest of a record, where the system cannot wait for it."""
HEAD_BYTES = 5
RECORD_TYPES = range(20, 24)
PEEK_BYTES_MAX = HEAD_BYTES + RECORD_BYTES + 256
DISCARD_BYTES = 64 * 1024

_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "the other side's certificate is not accepted",
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "HTTPS_PROXY_REQUEST": "the client takes this port for a proxy",
    "NO_SHARED_CIPHER": "the two sides have no cipher suite in common",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the two sides have no signature algorithm in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth is required",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side finds this side's certificate expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept this side's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side ended the handshake: versions, ciphers or certificates",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate, and this side has none",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the two sides have no version of TLS in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not know the authority of this side's certificate",
    "UNSUPPORTED_PROTOCOL": "the two sides have no version of TLS in common",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
}


class Next(Enum):
    """What a handshake waits for."""

    NOTHING = 1
    READ = 2
    WRITE = 3


Step = tuple[Next, OSError | None]


class Handshakes:
    """The steps that are due, over all streams of a process's loop: STEPS_AT_ONCE in threads, the others in line."""

    __slots__ = ("_in_thread", "_ready", "_running")

    def __init__(self, in_thread: Callable[..., asyncio.Future[Any]]) -> None:
        self._in_thread = in_thread
        self._ready: deque[RealTlsStream] = deque()
        self._running = 0

    def submit(self, stream: RealTlsStream) -> None:
        self._ready.append(stream)
        self._next()

    def _next(self) -> None:
        while self._ready and self._running < STEPS_AT_ONCE:
            stream = self._ready.popleft()
            if stream.begin_step():
                self._running += 1
                self._in_thread(stream.step).add_done_callback(partial(self._stepped, stream))

    def _stepped(self, stream: RealTlsStream, step: asyncio.Future[Step]) -> None:
        self._running -= 1
        if step.cancelled():
            stream.close()
        else:
            stream.after_step(*step.result())
        self._next()


class RealTlsStream:
    __slots__ = (
        "__weakref__",
        "_context",
        "_done",
        "_failure",
        "_fd",
        "_handshakes",
        "_has_more",
        "_host",
        "_in_step",
        "_is_calling",
        "_is_closed",
        "_is_ended",
        "_is_watching_read",
        "_is_watching_write",
        "_least",
        "_looks",
        "_loop",
        "_on_read",
        "_on_write",
        "_read_needs_write",
        "_socket",
        "_steps",
        "_tls",
        "_write_needs_read",
        "certificate",
        "local",
        "peer",
        "waits_for_us",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handshakes: Handshakes,
        connected: socket.socket,
        addresses: tuple[Address, Address],
        context: RealTlsContext,
        host: str | None,
    ) -> None:
        """`host`: of the server, for a client."""
        self.local, self.peer = addresses
        self.certificate: bytes | None = None
        self.waits_for_us = False
        self._loop = loop
        self._handshakes = handshakes
        self._socket = connected
        self._fd = connected.fileno()
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None  # made when there is something to do: it takes 20 KB
        self._done: Callable[[TlsError | None], object] | None = None
        self._steps = self._looks = 0
        self._least = 1  # bytes that the system waits for before it calls the socket readable
        self._in_step = self._is_closed = False
        self._on_read: Callable[[], object] | None = None
        self._on_write: Callable[[], object] | None = None
        self._is_watching_read = self._is_watching_write = False
        self._read_needs_write = self._write_needs_read = False
        self._has_more = False  # inside of OpenSSL, or an end that was not told yet
        self._is_calling = False
        self._is_ended = False
        self._failure: OSError | None = None

    def __repr__(self) -> str:
        return f"RealTlsStream(local={self.local}, peer={self.peer})"

    # The handshake

    def secure(self, done: Callable[[TlsError | None], object]) -> None:
        self._done = done
        if self._host is None:
            self.watch_readable(self._look)
        else:
            self._submit()

    def _submit(self) -> None:
        self.unwatch_readable()
        self.unwatch_writable()
        self.waits_for_us = True
        self._handshakes.submit(self)

    def _look(self) -> None:
        """Begin a step if the next record is there whole."""
        try:
            head = self._peek(HEAD_BYTES)
            needed = HEAD_BYTES + int.from_bytes(head[3:5], "big") if len(head) == HEAD_BYTES else HEAD_BYTES
            is_due = not head or head[0] not in RECORD_TYPES or needed > PEEK_BYTES_MAX
            if not is_due:
                is_due = len(head) == HEAD_BYTES and len(self._peek(needed)) == needed
            if is_due:
                self._wait_for(1)
                self._submit()
            else:
                self._await_rest(needed)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end_handshake(_as_tls_error(error))

    def _peek(self, length: int) -> bytes:
        return socket.socket.recv(self._tls or self._socket, length, socket.MSG_PEEK)

    def _wait_for(self, least: int) -> None:
        if least != self._least:
            self._least = least
            socket.socket.setsockopt(self._tls or self._socket, socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def _await_rest(self, needed: int) -> None:
        self._looks += 1
        if self._looks > LOOKS_MAX:
            self._end_handshake(TlsError("the handshake comes in too many pieces"))
            return
        if needed != self._least:
            with suppress(OSError):
                self._wait_for(needed)
                return
        self.unwatch_readable()
        self._loop.call_later(LOOK_PAUSE_S, self._look_again)

    def _look_again(self) -> None:
        if not self._is_closed:
            self.watch_readable(self._look)

    def begin_step(self) -> bool:
        """False where the stream was closed while it stood in line."""
        self._in_step = not self._is_closed
        return self._in_step

    def step(self) -> Step:
        """In a thread."""
        try:
            return self._step(), None
        except OSError as error:
            return Next.NOTHING, error
        except ValueError as error:  # a name that cannot be a host's
            return Next.NOTHING, TlsError(f"the handshake failed: {error}")

    def _step(self) -> Next:
        if self._tls is None:
            self._tls = self._context.wrap(self._socket, self._host)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Next.READ
        except ssl.SSLWantWriteError:
            return Next.WRITE
        self._context.check(self._tls)
        if self._context.asks_for_certificate:
            self.certificate = self._tls.getpeercert(binary_form=True)
        return Next.NOTHING

    def after_step(self, wanted: Next, error: OSError | None) -> None:
        self._in_step = self.waits_for_us = False
        self._steps += 1
        if self._is_closed:
            self._close_socket()
        elif error is not None:
            self._end_handshake(_as_tls_error(error))
        elif wanted is Next.NOTHING:
            self._has_more = self._tls is not None and self._tls.pending() > 0
            done, self._done = self._done, None
            if done is not None:
                done(None)
        elif self._steps >= STEPS_MAX:
            self._end_handshake(TlsError("the handshake comes in too many pieces"))
        elif wanted is Next.WRITE:
            self.watch_writable(self._submit)
        else:
            self.watch_readable(self._look)

    def _end_handshake(self, error: TlsError) -> None:
        """The other side shall learn why, so that its bytes are taken, lest the system answers them with a reset."""
        done, self._done = self._done, None
        with suppress(OSError):
            socket.socket.shutdown(self._tls or self._socket, socket.SHUT_WR)
            socket.socket.recv(self._tls or self._socket, DISCARD_BYTES)
        self._tls_gone()
        self.close()
        if done is not None:
            done(error)

    def _tls_gone(self) -> None:
        """No farewell: there is nothing to take leave of."""
        if self._tls is not None:
            self._socket, self._tls = self._tls, None

    # Bytes

    def recv_into(self, buffer: Any) -> int:
        tls = self._secured()
        view = memoryview(buffer)
        length = min(len(view), RECEIVE_BYTES_MAX)
        filled = 0
        try:
            while filled < length and not self._is_ended:
                received = tls.recv_into(view[filled:] if filled else view, length - filled)
                self._is_ended = not received
                filled += received
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
            self._has_more = False
            if filled:
                return filled
            if isinstance(wanted, ssl.SSLWantWriteError):
                self._read_needs_write = True
                self._update()
            raise BlockingIOError(errno.EAGAIN, "nothing to receive") from None
        except OSError as error:
            self._failure = self._failure or _as_connection_error(error)
            if not filled:
                raise self._failure from None
        self._tell(self._is_ended or self._failure is not None or tls.pending() > 0)
        return filled

    def send(self, data: Buffer) -> int:
        tls = self._secured()
        view = memoryview(data)
        length = min(len(view), SEND_BYTES_MAX)
        sent = 0
        try:
            while sent < length:
                sent += tls.send(view[sent : sent + RECORD_BYTES])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
            if not sent:
                if isinstance(wanted, ssl.SSLWantReadError):
                    self._write_needs_read = True
                    self._update()
                raise BlockingIOError(errno.EAGAIN, "no room to send") from None
        except OSError as error:
            if not sent:
                raise _as_connection_error(error) from None
        return sent

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Small buffers share a record; a large one is worth its own."""
        first = next((buffer for buffer in buffers if len(buffer)), b"")
        return self.send(first if len(first) >= RECORD_BYTES else b"".join(buffers))

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def sendfile(self, file: File, position: int, length: int) -> int:
        taken = 0
        while taken < min(length, SEND_BYTES_MAX):
            piece = file.pread(min(length - taken, FILE_PIECE_BYTES), position + taken)
            if not piece:
                break
            try:
                sent = self.send(piece)
            except OSError:
                if not taken:
                    raise
                break
            taken += sent
            if sent < len(piece):
                break
        return taken

    def _secured(self) -> ssl.SSLSocket:
        if self._tls is None or self._done is not None or self._is_closed:
            raise OSError(errno.EBADF if self._is_closed else errno.ENOTCONN, "the stream is not secured")
        if self._failure is not None:
            raise self._failure
        return self._tls

    # Readiness

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self._on_read = callback
        self._update()
        self._tell(self._has_more)

    def unwatch_readable(self) -> None:
        self._on_read = None
        self._update()

    def watch_writable(self, callback: Callable[[], object]) -> None:
        self._on_write = callback
        self._update()

    def unwatch_writable(self) -> None:
        self._on_write = None
        self._update()

    def _tell(self, has_more: bool) -> None:
        """Call the reader again where there is more though the socket has nothing: the loop would not."""
        self._has_more = has_more
        if has_more and self._on_read is not None and not self._is_calling:
            self._is_calling = True
            self._loop.call_soon(self._call_reader)

    def _call_reader(self) -> None:
        self._is_calling = False
        if self._has_more and self._on_read is not None:
            self._on_read()
            self._tell(self._has_more)

    def _update(self) -> None:
        """Watch for what the callbacks need, which is not always what they are for."""
        reads = (self._on_read is not None and not self._read_needs_write) or (
            self._on_write is not None and self._write_needs_read
        )
        writes = (self._on_write is not None and not self._write_needs_read) or (
            self._on_read is not None and self._read_needs_write
        )
        if reads != self._is_watching_read:
            self._is_watching_read = reads
            if reads:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        if writes != self._is_watching_write:
            self._is_watching_write = writes
            if writes:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        if self._write_needs_read:
            self._write_needs_read = False
            self._update()
            if self._on_write is not None:
                self._on_write()
        if self._on_read is not None:
            self._on_read()

    def _writable(self) -> None:
        if self._read_needs_write:
            self._read_needs_write = False
            self._update()
            if self._on_read is not None:
                self._on_read()
        if self._on_write is not None:
            self._on_write()

    # The end

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._on_read = self._on_write = self._done = None
        self._update()
        if not self._in_step:
            self._close_socket()

    def _close_socket(self) -> None:
        if self._tls is None:
            self._socket.close()
            return
        with suppress(OSError, ValueError):
            self._tls.unwrap()  # says farewell, and waits for none
        self._tls.close()

    def break_off(self) -> None:
        """From any thread: both sides find the connection ended, as far as it is not closed already."""
        with suppress(OSError):
            socket.socket.shutdown(self._tls or self._socket, socket.SHUT_RDWR)


def _as_connection_error(error: OSError) -> OSError:
    if isinstance(error, ssl.SSLError):
        if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            return ConnectionResetError(errno.ECONNRESET, "the other side has ended the connection")
        return ConnectionAbortedError(errno.ECONNABORTED, f"TLS: {error.reason or 'the stream is broken'}")
    return error


def _as_tls_error(error: OSError) -> TlsError:
    if isinstance(error, TlsError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"the other side's certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return TlsEnded("the other side has ended the connection during the handshake")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "unknown"
        return TlsError(_REASONS.get(reason, f"the handshake failed: {reason}"))
    return TlsError(error.strerror or "the connection has failed during the handshake")
