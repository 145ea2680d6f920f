"""The network between the brokers of one process, which a test can cut.

A cut breaks the connections that two brokers have to each other, and keeps them from making new ones, in both
directions. Clients reach both all the same, and so does the cluster store.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable

from moldau.runtime.ports import Address, Listener, Net, Stream
from moldau.runtime.real.net import RealStream
from moldau.runtime.real.tls import RealTlsStream
from moldau.runtime.tls import TlsContext, TlsSettings, TlsStream


class Links:
    """Who is cut off from whom; used from the threads of the test and of all brokers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers: dict[int, int] = {}  # by port
        self._cuts: set[frozenset[int]] = set()
        self._streams: dict[frozenset[int], weakref.WeakSet[RealStream | RealTlsStream]] = {}

    def know(self, broker: int, port: int) -> None:
        self._brokers[port] = broker

    def cut(self, broker: int, other: int) -> None:
        pair = frozenset({broker, other})
        with self._lock:
            self._cuts.add(pair)
            streams = list(self._streams.pop(pair, ()))
        for stream in streams:
            stream.break_off()

    def heal(self) -> None:
        with self._lock:
            self._cuts.clear()

    def pair_of(self, broker: int, port: int) -> frozenset[int] | None:
        """The link that a connection of a broker to a port belongs to; None where it is no broker's."""
        other = self._brokers.get(port)
        return None if other is None or other == broker else frozenset({broker, other})

    def check(self, pair: frozenset[int] | None, address: Address) -> None:
        if pair in self._cuts:
            raise OSError(errno.EHOSTUNREACH, f"{address[0]}:{address[1]} is cut off by the test")

    def add(self, pair: frozenset[int] | None, stream: RealStream | RealTlsStream, address: Address) -> None:
        """OSError where the link was cut while the connection was made."""
        if pair is not None:
            with self._lock:
                self.check(pair, address)
                self._streams.setdefault(pair, weakref.WeakSet()).add(stream)


class CuttableNet:
    """One broker's Net, with the links of its cluster."""

    def __init__(self, net: Net, broker: int, links: Links) -> None:
        self._net = net
        self._broker = broker
        self._links = links

    @property
    def accepted_max(self) -> int:
        return self._net.accepted_max

    def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        return self._net.listen(host, port, accept)

    def listen_tls(
        self, host: str, port: int, accept: Callable[[TlsStream], None], context: Callable[[], TlsContext]
    ) -> Listener:
        return self._net.listen_tls(host, port, accept, context)

    def tls_context(self, settings: TlsSettings) -> TlsContext:
        return self._net.tls_context(settings)

    def tls_check(self, server: TlsContext, client: TlsContext) -> None:
        self._net.tls_check(server, client)

    async def connect(
        self, host: str, port: int, *, timeout_s: float, tls: TlsContext | None = None
    ) -> Stream:
        pair = self._links.pair_of(self._broker, port)
        self._links.check(pair, (host, port))
        stream = await self._net.connect(host, port, timeout_s=timeout_s, tls=tls)
        if isinstance(stream, RealStream | RealTlsStream):
            try:
                self._links.add(pair, stream, (host, port))
            except OSError:
                stream.close()
                raise
        return stream
