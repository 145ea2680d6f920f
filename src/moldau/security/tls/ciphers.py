"""Cipher suites by Java's names, which Kafka's settings have, and by OpenSSL's.

The suites of TLS 1.3 have one name. Of TLS 1.2, the ones with forward secrecy and those with plain RSA are known;
suites without encryption, with RC4, DES or export keys, are not, however they are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TLS_1_3 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_ENCRYPTIONS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}
_NOT_DEFINED = {
    "ECDHE_ECDSA": ("AES_256_CBC_SHA256",),
    "ECDHE_RSA": ("AES_256_CBC_SHA256",),
    "DHE_RSA": ("AES_256_CBC_SHA384",),
    "RSA": ("AES_256_CBC_SHA384", "CHACHA20_POLY1305_SHA256"),
}
"""By exchange: what no standard puts together with it."""
OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{encryption}": before + after
    for exchange, before in _EXCHANGES.items()
    for encryption, after in _ENCRYPTIONS.items()
    if encryption not in _NOT_DEFINED[exchange]
}


class Ciphers(NamedTuple):
    """By OpenSSL's names."""

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]
    unknown: tuple[str, ...]


def ciphers_of(names: Iterable[str]) -> Ciphers:
    """Java's names, or OpenSSL's."""
    older, newer, unknown = [], [], []
    openssl = set(OPENSSL_NAMES.values())
    for name in names:
        if name in TLS_1_3:
            newer.append(name)
        elif name in OPENSSL_NAMES:
            older.append(OPENSSL_NAMES[name])
        elif name in openssl:
            older.append(name)
        elif name:
            unknown.append(name)
    return Ciphers(tuple(older), tuple(newer), tuple(unknown))
