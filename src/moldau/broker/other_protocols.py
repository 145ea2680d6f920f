"""Clients that speak something else than Kafka's protocol: told by the first bytes that they send.

As the length of a frame these are more than any request may have: a ClientHello of TLS begins with 16 03 (369 million),
a request of HTTP with a word in capitals (more than 1,000 million). Such a client comes again several times a second,
and is told of once a minute.
"""

from __future__ import annotations

from moldau.runtime.ports import Address

TLS, HTTP = "TLS", "HTTP"
_TLS_HANDSHAKE = b"\x16\x03"
"""The type of the first record, and the major version of SSL 3.0 and all of TLS."""
_HTTP_WORDS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")
"""The methods, and the preface of HTTP/2."""


def other_protocol(first: bytes) -> str | None:
    """What begins with these four bytes; None where they tell nothing."""
    if first.startswith(_TLS_HANDSHAKE):
        return TLS
    return HTTP if first in _HTTP_WORDS else None


def complaint(protocol: str, client: str, listener: str, local: Address) -> str:
    """One sentence for the people who run the broker."""
    place = f"the listener {listener} on port {local[1]}"
    if protocol == TLS:
        return f"{client} speaks TLS to {place}, which is plaintext: its client needs security.protocol=PLAINTEXT"
    return f"{client} speaks HTTP to {place}, which speaks Kafka's protocol: metrics and health are on moldau.http.port"
