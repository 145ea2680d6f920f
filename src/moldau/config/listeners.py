"""The keys `listeners`, `advertised.listeners` and `listener.security.protocol.map`, taken apart and checked.

Kafka's rules: names and ports are unique, every name has a security protocol, only what listens can be
advertised. The listeners of Kafka's controllers (`controller.listener.names`) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.config.key import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The protocols that a listener may have; one of the others is refused at the start."""


class Endpoint(NamedTuple):
    """One address; an empty host means every interface (listening) or the host's own name (advertising)."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(key: str, items: Sequence[str]) -> tuple[Endpoint, ...]:
    return tuple(_parse_endpoint(key, item) for item in items)


def _parse_endpoint(key: str, text: str) -> Endpoint:
    name, scheme, rest = text.partition("://")
    host, colon, port = rest.rpartition(":")
    if not scheme or not name or not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{key}: '{text}' is not NAME://HOST:PORT, like PLAINTEXT://localhost:9092")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(
            f"{key}: write the IPv6 address in '{text}' in brackets, like PLAINTEXT://[::1]:9092"
        )
    return Endpoint(name.upper(), host, int(port))


def protocol_map(text: str) -> dict[str, str]:
    """Listener name -> security protocol."""
    protocols = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: '{item}' is not NAME:PROTOCOL, like INTERNAL:PLAINTEXT"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def checked_listeners(
    listeners: Sequence[Endpoint], protocols: dict[str, str], skipped: Sequence[str]
) -> tuple[Endpoint, ...]:
    served = []
    names: set[str] = set()
    addresses: set[tuple[str, int]] = set()
    for endpoint in listeners:
        if endpoint.name in skipped:
            continue
        if endpoint.name in names:
            raise ConfigError(
                f"listeners: each listener must have a different name, '{endpoint.name}' is there twice"
            )
        if endpoint.port and (endpoint.host, endpoint.port) in addresses:
            raise ConfigError(
                f"listeners: each listener must have a different port, {endpoint.port} is there twice"
            )
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            raise ConfigError(
                f"listener.security.protocol.map: no security protocol for listener '{endpoint.name}'"
            )
        if protocol not in SERVED:
            raise ConfigError(
                f"listeners: '{endpoint}' is {protocol}, and Moldau serves only {', '.join(SERVED)} yet"
            )
        names.add(endpoint.name)
        addresses.add((endpoint.host, endpoint.port))
        served.append(Endpoint(endpoint.name, endpoint.host, endpoint.port, protocol))
    if not served:
        raise ConfigError("listeners: at least one listener is needed")
    return tuple(served)


def checked_advertised(
    advertised: Sequence[Endpoint], listeners: Sequence[Endpoint], skipped: Sequence[str]
) -> dict[str, tuple[str, int]]:
    """Listener name -> the address to tell clients."""
    names = {endpoint.name for endpoint in listeners}
    result: dict[str, tuple[str, int]] = {}
    for endpoint in advertised:
        if endpoint.name in skipped:
            continue
        if endpoint.host == "0.0.0.0":
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                "Use a routable IP address."
            )
        if endpoint.name not in names:
            raise ConfigError(f"advertised.listeners: '{endpoint.name}' is not among the listeners")
        if endpoint.name in result:
            raise ConfigError(f"advertised.listeners: '{endpoint.name}' is there twice")
        result[endpoint.name] = (endpoint.host, endpoint.port)
    return result


def inter_broker(listeners: Sequence[Endpoint], name: str | None, protocol: str | None) -> Endpoint:
    """The listener by which brokers talk to each other: the one of that name, else of that protocol's name, else the
    first."""
    if name is not None and protocol is not None:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        )
    wanted = name.upper() if name is not None else protocol
    if wanted is None:
        return listeners[0]
    found = next((endpoint for endpoint in listeners if endpoint.name == wanted), None)
    if found is None:
        key = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
        names = ",".join(endpoint.name for endpoint in listeners)
        raise ConfigError(
            f"requirement failed: {key} must be a listener name defined in listeners. The valid options based on "
            f"currently configured listeners are {names}"
        )
    return found
