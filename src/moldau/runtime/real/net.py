"""TCP over own non-blocking sockets, watched by the loop for readiness.

The stream's `recv_into`, `send` and `sendmsg` are the socket's bound methods: the port adds no call to the
data path. Sockets get TCP_NODELAY (answers are written whole) and a larger send buffer (fewer wake-ups per
fetched megabyte); the receive buffer stays the kernel's to tune, which fixing it would turn off.

A name that stands for several addresses is listened on at all of them, and connected to in their order.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from moldau.runtime.ports import Address, Buffer, File, Stream
from moldau.runtime.real.features import Features
from moldau.runtime.real.files import RealFile, accepted_streams_bound
from moldau.runtime.real.tls import RealTlsStream
from moldau.runtime.real.tls_context import RealTlsContext, check_together
from moldau.runtime.real.tls_steps import Handshakes
from moldau.runtime.tls import TlsContext, TlsError, TlsSettings, TlsStream

logger = logging.getLogger("moldau.net")

SEND_BUFFER_BYTES = 256 * 1024
ACCEPT_BACKLOG = 1024
ACCEPTS_PER_EVENT_MAX = 64
ACCEPT_PAUSE_S = 0.25
"""How long a listener rests when the process has no descriptor left: the connection stays in the backlog."""
SAID_EVERY_S = 60.0
PLAIN_SENDFILE_BYTES = 256 * 1024
ANY_PORT_ATTEMPTS = 16

NO_DESCRIPTOR_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FAMILY_MISSING = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)


class RealStream:
    __slots__ = (
        "__weakref__",
        "_fd",
        "_loop",
        "_reading",
        "_sendfile",
        "_socket",
        "_writing",
        "local",
        "peer",
        "recv_into",
        "send",
        "sendmsg",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, *, sendfile: bool) -> None:
        self._loop = loop
        self._socket = connected
        self._fd = connected.fileno()
        self._sendfile = sendfile
        self._reading = False
        self._writing = False
        self.local: Address = _plain_address(connected.getsockname())
        self.peer: Address = _plain_address(connected.getpeername())
        self.recv_into: Callable[[Any], int] = connected.recv_into
        self.send: Callable[[Buffer], int] = connected.send
        self.sendmsg: Callable[[Sequence[Buffer]], int] = getattr(connected, "sendmsg", self._joined_send)

    def __repr__(self) -> str:
        return f"RealStream(local={self.local}, peer={self.peer})"

    def send_more(self, data: Buffer) -> int:
        return self._socket.send(data, MSG_MORE)

    def sendfile(self, file: File, position: int, length: int) -> int:
        if sys.platform == "linux" and self._sendfile and isinstance(file, RealFile):
            file.used = True
            return os.sendfile(self._fd, file.fd if file.fd >= 0 else file.descriptor(), position, length)
        data = file.pread(min(length, PLAIN_SENDFILE_BYTES), position)
        return self.send(data) if data else 0

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self._loop.add_reader(self._fd, callback)
        self._reading = True

    def unwatch_readable(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def watch_writable(self, callback: Callable[[], object]) -> None:
        self._loop.add_writer(self._fd, callback)
        self._writing = True

    def unwatch_writable(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        self.unwatch_readable()
        self.unwatch_writable()
        self._fd = -1
        self._socket.close()

    def break_off(self) -> None:
        """From any thread: both sides find the connection ended, as far as it is not closed already."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _joined_send(self, buffers: Sequence[Buffer]) -> int:
        """Windows' sockets have no sendmsg. Small buffers are worth one copy, a large one is not."""
        first = next((buffer for buffer in buffers if len(buffer)), b"")
        return self.send(first if len(first) >= PLAIN_SENDFILE_BYTES else b"".join(buffers))


class RealListener:
    """One port on one or several addresses."""

    __slots__ = ("_accept", "_loop", "_make", "_said_s", "_sockets", "_timers", "address")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        accept: Callable[[Any], None],
        make: Callable[[socket.socket], Stream],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._accept = accept
        self._make = make
        self._said_s = -SAID_EVERY_S
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.address: Address = _plain_address(sockets[0].getsockname())
        for listening in sockets:
            loop.add_reader(listening.fileno(), self._accept_some, listening)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets = []

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_EVENT_MAX):
            if listening.fileno() < 0:  # the callback of the last connection closed the listener
                return
            try:
                connected, _address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTOR_LEFT:
                    self._pause(listening, error)
                    return
                continue  # that connection ended before it was accepted
            self._serve(connected)

    def _serve(self, connected: socket.socket) -> None:
        try:
            stream = self._make(connected)
        except OSError:  # reset by its client meanwhile
            connected.close()
            return
        try:
            self._accept(stream)
        except Exception:
            logger.exception("a connection from %s could not be taken on", stream.peer)
            stream.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        if self._loop.time() - self._said_s >= SAID_EVERY_S:
            self._said_s = self._loop.time()
            logger.warning("no connection can be accepted for now: %s", error.strerror)
        fd = listening.fileno()
        self._loop.remove_reader(fd)
        self._timers[fd] = self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._timers[listening.fileno()]
        self._loop.add_reader(listening.fileno(), self._accept_some, listening)


class RealNet:
    __slots__ = ("_handshakes", "_loop", "_sendfile", "accepted_max")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        features: Features,
        in_thread: Callable[..., asyncio.Future[Any]] | None = None,
    ) -> None:
        self.accepted_max = accepted_streams_bound()
        self._loop = loop
        self._sendfile = features.sendfile
        self._handshakes = Handshakes(loop, in_thread or partial(loop.run_in_executor, None))

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> RealListener:
        """A name is resolved here, on the loop: a listener's own name is an address or in the hosts file."""
        return RealListener(self._loop, _sockets_at(host, port), accept, self._plain)

    def listen_tls(
        self, host: str, port: int, accept: Callable[[TlsStream], None], context: Callable[[], TlsContext]
    ) -> RealListener:
        def make(connected: socket.socket) -> RealTlsStream:
            return self._secured(connected, context(), None)

        return RealListener(self._loop, _sockets_at(host, port), accept, make)

    async def connect(
        self, host: str, port: int, *, timeout_s: float, tls: TlsContext | None = None
    ) -> RealStream | RealTlsStream:
        try:
            async with asyncio.timeout(timeout_s):
                connected = await self._connect(host, port)
                return await self._made_secure(connected, host, tls) if tls else self._plain(connected)
        except TimeoutError:
            reason = f"{host}:{port} did not answer within {timeout_s:g} s"
            raise TimeoutError(errno.ETIMEDOUT, reason) from None

    def tls_context(self, settings: TlsSettings) -> RealTlsContext:
        return RealTlsContext(settings)

    def tls_check(self, server: TlsContext, client: TlsContext) -> None:
        assert isinstance(server, RealTlsContext)
        assert isinstance(client, RealTlsContext)
        check_together(server, client)

    def _plain(self, connected: socket.socket) -> RealStream:
        _tune(connected)
        return RealStream(self._loop, connected, sendfile=self._sendfile)

    def _secured(self, connected: socket.socket, context: TlsContext, host: str | None) -> RealTlsStream:
        assert isinstance(context, RealTlsContext)
        _tune(connected)
        addresses = _plain_address(connected.getsockname()), _plain_address(connected.getpeername())
        return RealTlsStream(self._loop, self._handshakes, connected, addresses, context, host)

    async def _made_secure(self, connected: socket.socket, host: str, tls: TlsContext) -> RealTlsStream:
        stream = self._secured(connected, tls, host)
        made: asyncio.Future[TlsError | None] = self._loop.create_future()
        try:
            stream.secure(lambda error: None if made.done() else made.set_result(error))
            error = await made
        except BaseException:
            stream.close()
            raise
        if error is not None:
            raise error
        return stream

    async def _connect(self, host: str, port: int) -> socket.socket:
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise _unknown_host(host, error) from error
        failure: OSError | None = None
        for family, kind, protocol, _, address in found:
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.setblocking(False)
                await self._loop.sock_connect(connecting, address)
                return connecting
            except OSError as error:
                connecting.close()
                failure = failure or error
            except BaseException:
                connecting.close()
                raise
        raise failure or _unknown_host(host, None)


def _tune(connected: socket.socket) -> None:
    connected.setblocking(False)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def _sockets_at(host: str, port: int) -> list[socket.socket]:
    for _ in range(ANY_PORT_ATTEMPTS - 1):
        try:
            return _listening_sockets(host, port)
        except OSError as error:
            # A port that was free at the name's first address may be taken at its second.
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _listening_sockets(host, port)


def _listening_sockets(host: str, port: int) -> list[socket.socket]:
    """One socket per address of the name, all on one port. An address family that the machine lacks is passed
    over."""
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    try:
        for family, address in _addresses_to_bind(host, port):
            if port == 0 and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                sockets.append(_listening_socket(family, address, dual_stack=host == ""))
            except OSError as error:
                if error.errno not in FAMILY_MISSING:
                    raise
                failure = error
        if not sockets:
            raise failure or _unknown_host(host, None)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _addresses_to_bind(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    if not host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, ("::", port))]
        return [(socket.AF_INET, ("0.0.0.0", port))]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise _unknown_host(host, error) from error
    # IPv4 first, so that the address that is reported for `localhost` is the one that every client can use.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys((int(entry[0]), entry[4]) for entry in found))


def _listening_socket(family: int, address: tuple[Any, ...], *, dual_stack: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two processes serve one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(ACCEPT_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _plain_address(address: Any) -> Address:
    host: str = address[0]
    return host.removeprefix("::ffff:") if "." in host else host, address[1]


def _unknown_host(host: str, error: OSError | None) -> OSError:
    reason = f": {error.strerror}" if error and error.strerror else ""
    return OSError(errno.EHOSTUNREACH, f"the host name {host!r} has no address{reason}")
