"""The addresses of a broker's listeners, as clients and other brokers are told of them."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.config.broker import BrokerConfig
from moldau.runtime.ports import Address, Listener

WILDCARDS = ("", "0.0.0.0", "::")


def bootstrap_servers(config: BrokerConfig, listeners: Mapping[str, Listener]) -> str:
    """The addresses that clients can start from: those that speak as the first listener does."""
    addresses = []
    for name, given, _, protocol in config.listeners:
        if protocol != config.listeners[0].protocol:
            continue
        own = given, listeners[name].address[1]
        host, port = config.advertised_listeners.get(name, own)
        host = "localhost" if host in WILDCARDS else host
        addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return ",".join(addresses)


def advertised(config: BrokerConfig, name: str, listener: Listener, host_name: str) -> Address:
    """Where others find a listener; no host is wherever they reach its machine."""
    if (address := config.advertised_listeners.get(name)) is not None:
        return address
    host, port = listener.address
    if host in WILDCARDS:
        host = "" if host_name == "localhost" else host_name
    return host, port
