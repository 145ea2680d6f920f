"""A host's sockets on the simulated network, with the manners of real ones.

Sends and receives may take fewer bytes than they could; the watchers are called again and again while their
condition holds. A reset is reported once by whoever receives or sends next, as Linux does; afterwards
receiving gives the end of the stream and sending a broken pipe.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from moldau.runtime.ports import Address, Buffer, File, Listener, Stream
from moldau.runtime.supervision import Report
from moldau.runtime.tls import TlsContext, TlsSettings, TlsSettingsError, TlsStream
from moldau.sim.errors import os_error
from moldau.sim.fabric import Fabric, Packet, Pipe
from moldau.sim.loop import Life
from moldau.sim.tasks import SimTasks

ANYWHERE = ("", "0.0.0.0", "::")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LISTENER_PORTS_START = 20_000
CONNECTION_PORTS_START = 40_000
WATCH_INTERVAL_S = 0.000_02
"""Between two calls of a watcher whose condition goes on to hold: a program that spins lets time pass."""
SENDFILE_BYTES = 64 * 1024
CONNECT_RETRY_S = 1.0
ACCEPTED_MAX = 100_000
NO_TLS = "the simulated network has no TLS"


class SimStream:
    def __init__(
        self, station: Station, life: Life, *, local: Address, peer: Address, outward: Pipe, inward: Pipe
    ) -> None:
        self.local = local
        self.peer = peer
        self.gone = False
        fabric = station.fabric
        self._fabric = fabric
        self._station = station
        self._life = life
        self._outward = outward
        self._inward = inward
        self._ended = False
        self._error: OSError | None = None
        self._broken = False
        self._readable = Watcher(fabric, life, self._can_receive)
        self._writable = Watcher(fabric, life, self._can_send)
        outward.source_end = inward.target_end = self
        station.streams[self] = None

    # The port

    def recv_into(self, buffer: Any) -> int:
        self._check()
        unread = self._inward.unread
        if not unread:
            if self._error is None and (self._ended or self._broken):
                return 0
            self._raise_error()
            raise BlockingIOError(errno.EAGAIN, "nothing to receive")
        view = memoryview(buffer).cast("B")
        count = self._some(min(len(view), len(unread)))
        view[:count] = unread[:count]
        self._inward.received(count)
        self._fabric.trace.record(self._life.host, "receive", self.peer, count)
        return count

    def send(self, data: Buffer) -> int:
        self._check()
        self._raise_error()
        if self._broken:
            raise os_error(errno.EPIPE)
        room = self._outward.room_bytes
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "no room to send")
        if self._fabric.random.chance(self._outward.link.reset_rate):
            self.failed(os_error(errno.ECONNRESET))
            self._outward.push(Packet.RST)
            self._raise_error()
        part = bytes(memoryview(data).cast("B")[: self._some(min(len(data), room))])
        self._fabric.trace.record(self._life.host, "send", self.peer, len(part), zlib.crc32(part))
        self._outward.push(Packet.DATA, part)
        return len(part)

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        return self.send(b"".join(buffers))

    def sendfile(self, file: File, position: int, length: int) -> int:
        data = file.pread(min(length, SENDFILE_BYTES), position)
        return self.send(data) if data else 0

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self._check()
        self._readable.watch(callback)

    def unwatch_readable(self) -> None:
        self._readable.unwatch()

    def watch_writable(self, callback: Callable[[], object]) -> None:
        self._check()
        self._writable.watch(callback)

    def unwatch_writable(self) -> None:
        self._writable.unwatch()

    def close(self) -> None:
        self._life.check()
        if not self.gone:
            self._fabric.trace.record(self._life.host, "close", self.peer)
            # A program that does not read all that arrived cannot have meant to: TCP says so to the other
            # side.
            self._leave(Packet.RST if self._inward.unread else Packet.FIN)

    # What happens to it

    def arrived(self, packet: Packet) -> None:
        if packet is Packet.RST:
            if self._fabric.random.chance(0.5):
                self._inward.unread.clear()
            self.failed(os_error(errno.ECONNRESET))
        elif packet is Packet.FIN:
            self._ended = True
        self._readable.poke()

    def room_made(self) -> None:
        self._writable.poke()

    def failed(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            self._error = error
            self._outward.clear()
        self._readable.poke()
        self._writable.poke()

    def host_ended(self, *, power_lost: bool) -> None:
        """Its life is over. On a host that lives on, the kernel closes for the process; one without power
        cannot."""
        if not self.gone:
            if power_lost:
                self._outward.lose()
                self._leave(None)
            else:
                self._leave(Packet.RST if self._inward.unread else Packet.FIN)

    def _leave(self, last: Packet | None) -> None:
        self.gone = True
        self._readable.unwatch()
        self._writable.unwatch()
        self._inward.unread.clear()
        if last is not None and not self._broken:
            self._outward.push(last)
        self._station.streams.pop(self, None)
        self._inward.forget_if_done()
        self._outward.forget_if_done()

    # Conditions

    def _can_receive(self) -> bool:
        return bool(self._inward.unread) or self._ended or self._broken

    def _can_send(self) -> bool:
        return self._broken or self._outward.room_bytes > 0

    def _some(self, count: int) -> int:
        random = self._fabric.random
        if count > 1 and random.chance(self._outward.link.partial_rate):
            return 1 + random.randrange(count)
        return count

    def _check(self) -> None:
        self._life.check()
        if self.gone:
            raise os_error(errno.EBADF)

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


class Watcher:
    """Calls back while a condition holds, one call per turn of the loop."""

    __slots__ = ("_callback", "_condition", "_due", "_fabric", "_life")

    def __init__(self, fabric: Fabric, life: Life, condition: Callable[[], bool]) -> None:
        self._fabric = fabric
        self._life = life
        self._condition = condition
        self._callback: Callable[[], object] | None = None
        self._due: asyncio.Handle | None = None

    def watch(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.poke()

    def unwatch(self) -> None:
        self._callback = None
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def poke(self) -> None:
        """The condition may hold now."""
        if self._callback is not None and self._due is None and self._condition():
            self._due = self._fabric.loop.call_later(WATCH_INTERVAL_S, self._fire, context=self._life.context)

    def _fire(self) -> None:
        self._due = None
        try:
            if self._callback is not None and self._condition():
                self._callback()
        finally:
            self.poke()


class SimListener:
    def __init__(
        self, station: Station, address: Address, accept: Callable[[Stream], None], life: Life
    ) -> None:
        self.address = address
        self.accept = accept
        self.life = life
        self._station = station

    def serves(self, host: str, port: int) -> bool:
        return self.address[1] == port and (self.address[0] in ANYWHERE or self.address[0] == host)

    def close(self) -> None:
        self._station.listeners.pop(self, None)


class Station:
    """One host's place in the network, the same over all of its lives."""

    def __init__(self, fabric: Fabric, name: str, address: str) -> None:
        self.fabric = fabric
        self.name = name
        self.address = address
        self.listeners: dict[SimListener, None] = {}
        self.streams: dict[SimStream, None] = {}
        self._next_port = CONNECTION_PORTS_START

    def find(self, host: str, port: int) -> SimListener | None:
        return next((listener for listener in self.listeners if listener.serves(host, port)), None)

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def end(self, *, power_lost: bool) -> None:
        """The host's life is over."""
        for stream in list(self.streams):
            stream.host_ended(power_lost=power_lost)
        self.listeners.clear()


class SimNet:
    """The port of one life of one host."""

    accepted_max = ACCEPTED_MAX

    def __init__(
        self, stations: dict[str, Station], name: str, life: Life, tasks: SimTasks, report: Report
    ) -> None:
        self._stations = stations
        self._station = stations[name]
        self._fabric = self._station.fabric
        self._life = life
        self._tasks = tasks
        self._report = report

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> SimListener:
        self._life.check()
        address = self._own_address(host)
        if port == 0:
            port = LISTENER_PORTS_START
            while self._taken(address, port):
                port += 1
        elif self._taken(address, port):
            raise os_error(errno.EADDRINUSE)
        listener = SimListener(self._station, (address, port), accept, self._life)
        self._station.listeners[listener] = None
        self._fabric.trace.record(self._life.host, "listen", address, port)
        return listener

    def listen_tls(
        self, host: str, port: int, accept: Callable[[TlsStream], None], context: Callable[[], TlsContext]
    ) -> Listener:
        raise OSError(errno.EPROTONOSUPPORT, NO_TLS)

    def tls_context(self, settings: TlsSettings) -> TlsContext:
        raise TlsSettingsError(NO_TLS)

    def tls_check(self, server: TlsContext, client: TlsContext) -> None:
        raise TlsSettingsError(NO_TLS)

    def _own_address(self, host: str) -> str:
        if host in ANYWHERE:
            return host or "0.0.0.0"
        if host in LOOPBACK:
            return "127.0.0.1"
        if host in (self._station.name, self._station.address):
            return self._station.address
        raise os_error(errno.EADDRNOTAVAIL)

    def _taken(self, address: str, port: int) -> bool:
        return any(
            listener.address[1] == port
            and (listener.address[0] == address or address in ANYWHERE or listener.address[0] in ANYWHERE)
            for listener in self._station.listeners
        )

    async def connect(
        self, host: str, port: int, *, timeout_s: float, tls: TlsContext | None = None
    ) -> SimStream:
        self._life.check()
        if tls is not None:
            raise OSError(errno.EPROTONOSUPPORT, NO_TLS)
        target, address = self._resolve(host)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connect(target, address, port)
        except TimeoutError:
            reason = f"{host}:{port} did not answer within {timeout_s:g} s"
            raise TimeoutError(errno.ETIMEDOUT, reason) from None

    def _resolve(self, host: str) -> tuple[Station, str]:
        if host in LOOPBACK or host in ANYWHERE:
            return self._station, "127.0.0.1"
        for station in self._stations.values():
            if host in (station.name, station.address):
                return station, station.address
        raise OSError(errno.EHOSTUNREACH, f"the host name {host!r} has no address")

    async def _connect(self, target: Station, address: str, port: int) -> SimStream:
        mine, theirs = self._station.name, target.name
        retry_s = CONNECT_RETRY_S
        await self._tasks.sleep(self._fabric.delay_s(mine, theirs))
        while not self._fabric.is_open(mine, theirs):  # the packet that asks, or its answer, is lost
            await self._tasks.sleep(retry_s)
            retry_s *= 2
        listener = target.find(address, port)
        if listener is None:
            await self._tasks.sleep(self._fabric.delay_s(theirs, mine))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {address}:{port}")
        stream = self._establish(target, listener, (address, port))
        try:
            await self._tasks.sleep(self._fabric.delay_s(theirs, mine))
        except BaseException:
            stream.close()
            raise
        return stream

    def _establish(self, target: Station, listener: SimListener, address: Address) -> SimStream:
        source = "127.0.0.1" if address[0] == "127.0.0.1" else self._station.address
        mine: Address = (source, self._station.next_port())
        there, back = self._fabric.pipes(self._station.name, target.name)
        client = SimStream(self._station, self._life, local=mine, peer=address, outward=there, inward=back)
        server = SimStream(target, listener.life, local=address, peer=mine, outward=back, inward=there)
        self._fabric.trace.record(self._life.host, "connect", address, mine)
        context = listener.life.context
        self._fabric.loop.call_soon(self._accept, listener, server, context=context)
        return client

    def _accept(self, listener: SimListener, stream: SimStream) -> None:
        try:
            listener.accept(stream)
        except Exception as error:
            self._report(f"taking on a connection from {stream.peer}", error)
            stream.close()
