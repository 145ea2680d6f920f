"""TLS streams over own non-blocking sockets, by OpenSSL as Python has it.

A stream keeps what its port says, whatever OpenSSL does inside: a reader is called again while decrypted bytes are
left, though the socket has none; a buffer is filled over several records; bytes that were not taken are to be offered
again first, as every caller does anyway. An end without a farewell is an end: frames have lengths.

OpenSSL reads and writes memory here, one record after the other: left to itself with a socket, it stays in one call for
as long as records come that carry nothing, and a client may send a hundred thousand changes of keys in a second. A
few in a row are enough for whoever is honest; more of them end the connection. OpenSSL answers some by itself: while
the other side does not take what is encrypted for it, nothing more is decrypted.

The handshake computes in a thread (`tls_steps`). A client that says nothing, or sends byte by byte, takes none: a step
begins when a whole record is there. How long and how many at once is the caller's.

Records of files are read and then encrypted. OpenSSL can leave encryption to the kernel (OP_ENABLE_KTLS, Python 3.12),
where `os.sendfile` would go past the process again; that is not built, and needs OpenSSL to have the socket.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from moldau.runtime.ports import Address, Buffer, File
from moldau.runtime.real.tls_context import RealTlsContext
from moldau.runtime.real.tls_errors import as_connection_error, as_tls_error
from moldau.runtime.real.tls_steps import Handshakes, Next, Step
from moldau.runtime.tls import TlsEnded, TlsError

RECORD_BYTES = 16 * 1024
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
RECEIVE_BYTES_MAX = 256 * 1024
"""Decrypted in one call: some 0.3 ms."""
BARREN_RECORDS_MAX = 32
"""One after the other that carry nothing (changes of keys, handshakes begun anew); one more ends the connection."""
RAW_BYTES_MAX = 32 * 1024
"""Received at once, and held for a connection until it is decrypted."""
SEND_BYTES_MAX = 256 * 1024
PIECE_BYTES = 32 * 1024
"""Encrypted at once, and held for a connection until the socket takes it."""
OUT_BYTES_MAX = 2 * PIECE_BYTES
"""Encrypted and not taken: a piece, and what OpenSSL answers by itself. Nothing is decrypted while it is more."""
FILE_PIECE_BYTES = 64 * 1024
STEPS_MAX = 32
"""Of one handshake: an honest one has three, unless its network cuts records short."""
RECORDS_PER_STEP = 16
HANDSHAKE = 22
HEAD_BYTES = 5
RECORD_TYPES = range(20, 24)
RECORD_BYTES_MAX = HEAD_BYTES + RECORD_BYTES + 256
"""What claims to be longer is given to OpenSSL, which refuses it."""
DISCARD_BYTES = 64 * 1024
NO_BIO = ssl.MemoryBIO()
"""Before there is one; never written to."""


class RealTlsStream:
    __slots__ = (
        "__weakref__",
        "_barren",
        "_context",
        "_done",
        "_failure",
        "_fd",
        "_handshakes",
        "_has_more",
        "_host",
        "_in_step",
        "_incoming",
        "_is_calling",
        "_is_closed",
        "_is_ended",
        "_is_watching_read",
        "_is_watching_write",
        "_loop",
        "_on_read",
        "_on_write",
        "_out",
        "_outgoing",
        "_owed",
        "_raw",
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
        self._tls: ssl.SSLObject | None = None  # made when there is something to do: it takes memory
        self._incoming: ssl.MemoryBIO = NO_BIO
        self._outgoing: ssl.MemoryBIO = NO_BIO
        self._raw = b""  # received, and not given to OpenSSL yet: the rest of a record, and what follows
        self._out = memoryview(b"")  # encrypted, and not taken by the socket yet
        self._owed = 0  # bytes of which that is the rest: they were not taken, and will be offered again
        self._done: Callable[[TlsError | None], object] | None = None
        self._steps = 0
        self._in_step = self._is_closed = False
        self._on_read: Callable[[], object] | None = None
        self._on_write: Callable[[], object] | None = None
        self._is_watching_read = self._is_watching_write = False
        self._write_needs_read = self._read_needs_write = False
        self._barren = 0  # records without data since the last one that had some
        self._has_more = False  # here or inside of OpenSSL, or an end that was not told yet
        self._is_calling = False
        self._is_ended = False
        self._failure: OSError | None = None

    def __repr__(self) -> str:
        return f"RealTlsStream(local={self.local}, peer={self.peer})"

    # The handshake

    @property
    def has_begun(self) -> bool:
        return self._steps > 0

    def secure(self, done: Callable[[TlsError | None], object]) -> None:
        self._done = done
        if self._host is None:
            self.watch_readable(self._receive_step)
        else:
            self._submit()

    def _receive_step(self) -> None:
        """Begin a step if a whole record is there."""
        if not self._handshakes.turn.may_look():
            return
        try:
            self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end_handshake(as_tls_error(error))
            return
        raw = self._raw
        is_other = bool(raw) and raw[0] not in RECORD_TYPES
        if self._record_bytes(0) or is_other:
            self._submit()
        elif self._is_ended:
            self._end_handshake(TlsEnded("the other side has ended the connection during the handshake"))

    def _submit(self) -> None:
        self.unwatch_readable()
        self.unwatch_writable()
        if self._is_nearly_made():
            self.begin_step()
            self.after_step(*self.step())
            return
        self.waits_for_us = True
        self._handshakes.submit(self)

    def _is_nearly_made(self) -> bool:
        """Whether all that is left is to check that a client of TLS 1.3 has the same keys: 50 us, less than it takes to
        ask a thread. Records of another kind (HANDSHAKE) may begin anew, with a signature."""
        if self._steps == 0 or self._host is not None or self._context.asks_for_certificate:
            return False
        start = 0
        while (size := self._record_bytes(start)) and self._raw[start] != HANDSHAKE:
            start += size
        return start == len(self._raw) > 0

    def begin_step(self) -> bool:
        """False where the stream was closed while it stood in line."""
        self._in_step = not self._is_closed
        if self._in_step and self._tls is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        if self._in_step and self._raw:
            for _ in range(RECORDS_PER_STEP):
                if not self._feed_one():
                    break
            else:
                return True
            if self._raw and self._raw[0] not in RECORD_TYPES:
                self._incoming.write(self._raw)  # OpenSSL says what it is
                self._raw = b""
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
            self._tls = self._context.wrap(self._incoming, self._outgoing, self._host)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Next.READ
        self._context.check(self._tls)
        if self._context.asks_for_certificate:
            self.certificate = self._tls.getpeercert(binary_form=True)
        return Next.DONE

    def after_step(self, wanted: Next, error: OSError | None) -> None:
        self._in_step = self.waits_for_us = False
        self._steps += 1
        if self._is_closed:
            self._close_socket()
        elif error is not None:
            self._end_handshake(as_tls_error(error))
        elif wanted is Next.READ and self._steps >= STEPS_MAX:
            self._end_handshake(TlsError("the handshake comes in too many pieces"))
        else:
            self._go_on(wanted)

    def _go_on(self, wanted: Next) -> None:
        """Once what the step has made is sent."""
        try:
            is_sent = self._flush()
        except OSError as error:
            self._end_handshake(as_tls_error(error))
            return
        if not is_sent:
            self.watch_writable(lambda: self._go_on(wanted))
            return
        self.unwatch_writable()
        if wanted is Next.DONE:
            self._acknowledge()
            self._has_more = self._holds_more()
            done, self._done = self._done, None
            if done is not None:
                done(None)
        elif self._record_bytes(0):
            self._submit()
        else:
            self.watch_readable(self._receive_step)

    def _acknowledge(self) -> None:
        """Nothing follows a client's last message here (no tickets), and so no acknowledgement for 40 ms; a client
        whose socket joins small writes (Nagle's) would hold its first request for as long."""
        if QUICK_ACK is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def _end_handshake(self, error: TlsError) -> None:
        """The other side shall learn why, so that its bytes are taken, lest the system answers them with a reset."""
        done, self._done = self._done, None
        with suppress(OSError):
            self._flush()
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.recv(DISCARD_BYTES)
        self._tls = None  # there is nobody to take leave of
        self.close()
        if done is not None:
            done(error)

    # Records

    def _record_bytes(self, start: int) -> int:
        """The length of the record that begins there, if it is there whole; else 0."""
        if len(self._raw) - start < HEAD_BYTES:
            return 0
        size = HEAD_BYTES + int.from_bytes(self._raw[start + 3 : start + HEAD_BYTES], "big")
        return size if len(self._raw) - start >= min(size, RECORD_BYTES_MAX) else 0

    def _receive(self) -> None:
        """More from the socket, behind what is there. BlockingIOError where there is nothing."""
        room = RAW_BYTES_MAX - len(self._raw)
        if room <= 0 or self._is_ended:
            return
        data = self._socket.recv(room)
        self._is_ended = not data
        self._raw = self._raw + data if self._raw else data

    def _feed_one(self) -> bool:
        """Give OpenSSL one record: it goes on by itself as long as it has some, and one that carries nothing (a change
        of keys) takes as long as a large one."""
        size = self._record_bytes(0)
        if size:
            self._incoming.write(memoryview(self._raw)[:size])
            self._raw = self._raw[size:]
        return size > 0

    def _holds_more(self) -> bool:
        tls = self._tls
        return (
            self._is_ended
            or self._failure is not None
            or self._incoming.pending > 0
            or (tls is not None and tls.pending() > 0)
            or self._record_bytes(0) > 0
        )

    def _flush(self) -> bool:
        """Send what is encrypted; whether all of it went."""
        if self._outgoing.pending:
            made = self._outgoing.read()
            self._out = memoryview(b"".join((self._out, made)) if self._out else made)
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except (BlockingIOError, InterruptedError):
            return False
        return True

    # Bytes

    def recv_into(self, buffer: Any) -> int:
        tls = self._secured()
        view = memoryview(buffer)
        length = min(len(view), RECEIVE_BYTES_MAX)
        filled = records = 0
        turn = self._handshakes.turn
        records_max = turn.records_max()
        start_s = monotonic()
        is_dry = is_blocked = False
        try:
            while filled < length and records < records_max:
                if not (tls.pending() or self._incoming.pending) and not self._feed_one():
                    if self._is_ended:
                        break
                    self._receive()
                    continue
                if self._is_stuffed() and not self._flush():
                    self._read_needs_write = is_blocked = True
                    self._update()
                    break
                records += 1
                try:
                    count = cast(int, tls.read(length - filled, view[filled:]))
                except ssl.SSLWantReadError:
                    self._count_barren()
                    continue
                if not count:
                    self._is_ended = True
                    self._raw = b""
                    break
                self._barren = 0
                filled += count
        except (BlockingIOError, InterruptedError):
            is_dry = True
        except OSError as error:
            self._failure = self._failure or as_connection_error(error)
            if not filled:
                raise self._failure from None
        finally:
            turn.spend(monotonic() - start_s)
        if self._outgoing.pending:
            with suppress(OSError):
                self._flush()
        self._tell(not is_dry and not is_blocked and self._holds_more())
        if not filled and (not self._is_ended or is_blocked):
            raise BlockingIOError(errno.EAGAIN, "nothing to receive")
        return filled

    def _is_stuffed(self) -> bool:
        """Whether the other side does not read what OpenSSL has answered."""
        return len(self._out) + self._outgoing.pending > OUT_BYTES_MAX

    def _count_barren(self) -> None:
        self._barren += 1
        if self._barren > BARREN_RECORDS_MAX:
            raise ConnectionAbortedError(errno.ECONNABORTED, "TLS: too many records that carry nothing")

    def send(self, data: Buffer) -> int:
        """A piece is encrypted once. Where the socket does not take all of it, it counts as not taken: the same bytes
        are offered again, and then the rest of it is sent."""
        tls = self._secured()
        view = memoryview(data)
        length = min(len(view), SEND_BYTES_MAX)
        try:
            sent = self._settled()
            while sent < length:
                piece = view[sent : min(length, sent + PIECE_BYTES)]
                tls.write(piece)
                if not self._flush():
                    self._owed = len(piece)
                    break
                sent += len(piece)
        except ssl.SSLWantReadError:  # the middle of a change of keys
            self._write_needs_read = True
            self._update()
        except (BlockingIOError, InterruptedError):
            raise
        except OSError as error:
            self._failure = self._failure or as_connection_error(error)
            raise self._failure from None
        if not sent and length:
            raise BlockingIOError(errno.EAGAIN, "no room to send")
        return sent

    def _settled(self) -> int:
        """The bytes of a piece that was offered before, when the rest of it has gone out."""
        if not self._flush():
            raise BlockingIOError(errno.EAGAIN, "no room to send")
        owed, self._owed = self._owed, 0
        return owed

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Small buffers share a record; a large one is worth its own."""
        first = next((buffer for buffer in buffers if len(buffer)), b"")
        return self.send(first if len(first) >= PIECE_BYTES else b"".join(buffers))

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def sendfile(self, file: File, position: int, length: int) -> int:
        self._secured()
        taken = 0
        while taken < min(length, SEND_BYTES_MAX):
            if self._out and not self._flush():  # before anything is read
                break
            piece = file.pread(min(length - taken, FILE_PIECE_BYTES), position + taken)
            if not piece:
                return taken
            try:
                sent = self.send(piece)
            except BlockingIOError:
                break
            taken += sent
            if sent < len(piece):
                break
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "no room to send")
        return taken

    def _secured(self) -> ssl.SSLObject:
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
        is_reader, is_writer = self._on_read is not None, self._on_write is not None
        reads = (is_reader and not self._read_needs_write) or (is_writer and self._write_needs_read)
        writes = (is_writer and not self._write_needs_read) or (is_reader and self._read_needs_write)
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
            with suppress(OSError):  # whoever sends next finds it
                self._receive()
            self._feed_one()
            if self._on_write is not None:
                self._on_write()
        if self._on_read is not None:
            self._on_read()

    def _writable(self) -> None:
        if self._read_needs_write:
            with suppress(OSError):  # whoever reads next finds it
                if not self._flush():
                    return
            self._read_needs_write = False
            self._update()
            self._tell(True)
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
        if self._tls is not None and not self._out and self._failure is None:
            self._say_farewell(self._tls)
        self._tls = None
        self._raw = b""
        self._socket.close()

    def _say_farewell(self, tls: ssl.SSLObject) -> None:
        """Not as a server of TLS 1.2: OpenSSL would remember the session, 10 KB for one with certificates, of thousands
        of connections that have ended so."""
        if self._host is not None or tls.version() == "TLSv1.3":
            with suppress(OSError, ValueError):
                tls.unwrap()
            with suppress(OSError):
                self._flush()

    def break_off(self) -> None:
        """From any thread: both sides find the connection ended, as far as it is not closed already."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
