"""A network by which others are reached where they speak TLS: each connection that it makes is secured."""

from __future__ import annotations

from collections.abc import Callable

from moldau.runtime.ports import Listener, Net, Stream
from moldau.runtime.tls import TlsContext, TlsSettings, TlsStream


class SecuredNet:
    """`context` is asked for each connection: certificates change."""

    def __init__(self, net: Net, context: Callable[[], TlsContext]) -> None:
        self._net = net
        self._context = context

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
        return await self._net.connect(host, port, timeout_s=timeout_s, tls=tls or self._context())
