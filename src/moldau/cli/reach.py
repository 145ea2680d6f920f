"""Who can reach a broker of `moldau up`: this machine alone, or everybody who gets to one of its addresses.

It listens on `localhost` unless `--open` or listeners say otherwise, and says so where it asks for no password then. It
says as well where it sends clients to an address that it does not listen on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

LOCALHOST = "localhost"
ALL_ADDRESSES = ""
BROKERS = "BROKERS"
"""The listener of the brokers among themselves."""
DEFAULT_PORT = 9092
_ALL = (ALL_ADDRESSES, "0.0.0.0", "::")


def listeners_of(port: int | None, *, is_open: bool, is_secure: bool = False) -> str:
    """With `is_secure` brokers meet on a listener of their own, on this machine alone."""
    clients = f"{ALL_ADDRESSES if is_open else LOCALHOST}:{DEFAULT_PORT if port is None else port}"
    return f"SASL_SSL://{clients},{BROKERS}://127.0.0.1:0" if is_secure else f"PLAINTEXT://{clients}"


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCALHOST


def remarks_on_reach(config: BrokerConfig, store_url: str) -> Iterator[str]:
    """What whoever starts it should know of it."""
    reachable = [endpoint for endpoint in config.listeners if not is_local(endpoint.host)]
    for endpoint in reachable:
        if endpoint.is_sasl:
            continue
        where = "all addresses of this machine" if endpoint.host in _ALL else endpoint.host
        yield (
            f"the listener {endpoint.name} is open on {where}, without a password: "
            "whoever reaches it can read and write everything"
        )
    for endpoint in config.listeners:
        host, port = config.advertised_listeners.get(endpoint.name, (endpoint.host, endpoint.port))
        if is_local(endpoint.host) and not is_local(host):
            told = endpoint._replace(host=host, port=port)
            yield (
                f"advertised.listeners sends clients to {told}, and that listener is open on {endpoint.host} only: "
                "unless a proxy there forwards them, nobody gets through; --open, or --set listeners=... with an "
                "address of this machine, lets them"
            )
    if not reachable and not all(map(is_local, _hosts_of_store(store_url))):
        yield (
            "the cluster store is on other machines, and no broker there can reach this one, which listens on "
            "localhost: --open, or --set listeners=... with an address of this machine, lets them"
        )


def _hosts_of_store(url: str) -> list[str]:
    kind, _, rest = url.partition(":")
    if kind != "zookeeper":
        return []
    from moldau.store.zookeeper_url import parse

    return [host.rpartition(":")[0].strip("[]") for host in parse(rest).hosts.split(",")]
