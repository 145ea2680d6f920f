"""How the command line reaches brokers that it runs itself: as they reach each other, by their own settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig
    from moldau.peers.connection import PeerConnection
    from moldau.runtime.ports import Address, Runtime
    from moldau.security.sasl.client import Login

CLIENT_ID = "moldau-up"
EVERYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class OwnWay:
    runtime: Runtime
    """Whose network speaks TLS, where brokers do among themselves."""
    login: Login | None

    @classmethod
    def of(cls, runtime: Runtime, config: BrokerConfig) -> Self:
        """By what the settings of one of the brokers say; it reads files."""
        from moldau.broker.sasl import login_of

        listener = config.inter_broker_listener
        if listener.is_tls:
            from moldau.config.listener_settings import settings_of
            from moldau.runtime.secured_net import SecuredNet
            from moldau.security.tls.settings import sides_of

            sides = sides_of(settings_of(config, listener.name), runtime.disk.read)
            context = runtime.net.tls_context(sides.client)
            runtime = replace(runtime, net=SecuredNet(runtime.net, lambda: context))
        return cls(runtime, login_of(config))

    async def connection(self, address: Address, timeout_s: float) -> PeerConnection:
        """OSError or Disconnected where there is none to have."""
        from moldau.peers.connection import PeerConnection

        connection = await PeerConnection.open(self.runtime, *address, CLIENT_ID, timeout_s=timeout_s)
        if self.login is not None:
            from moldau.peers.login import log_in

            try:
                await log_in(self.runtime, connection, self.login)
            except BaseException:
                connection.close()
                raise
        return connection


def address_here(host: str, port: int) -> Address:
    """Where a listener of this machine is reached from it."""
    return "localhost" if host in EVERYWHERE else host, port
