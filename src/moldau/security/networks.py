"""Addresses of clients, as far as they are counted: who has one of IPv6 has a whole /64 of them. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

_PREFIX = 64


def network_of(address: str) -> str:
    """What stands for all addresses that one machine has at hand."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), _PREFIX), strict=False))
