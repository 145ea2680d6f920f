"""How the command line reaches brokers that it runs itself: as they reach each other, by their own settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.cli.peer_way import TlsNet

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig
    from moldau.runtime.ports import Address, Runtime

EVERYWHERE = ("", "0.0.0.0", "::")


def way_to_own(runtime: Runtime, config: BrokerConfig) -> Runtime:
    """The same world, whose network connects as brokers with these settings do."""
    listener = config.inter_broker_listener
    if not listener.is_tls:
        return runtime
    from moldau.config.listener_settings import settings_of
    from moldau.security.tls.settings import sides_of

    sides = sides_of(settings_of(config, listener.name), runtime.disk.read)
    return replace(runtime, net=TlsNet(runtime.net, runtime.net.tls_context(sides.client)))


def address_here(host: str, port: int) -> Address:
    """Where a listener of this machine is reached from it."""
    return "localhost" if host in EVERYWHERE else host, port
