"""How a connection proves who is at its ends: TLS, and SASL by PLAIN or SCRAM (RFC 5802, RFC 7677).

SASL is Kafka's: SaslHandshake names the mechanism, SaslAuthenticate carries its messages. SCRAM checks the server too.
What is refused is `SecurityFailed`, which no further try would change. Names and passwords are taken as they are,
without SASLprep, as Kafka's own client takes them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from moldau.spark.blocks.client_settings import Sasl, Tls
from moldau.spark.blocks.errors import SecurityFailed

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
"""A server that asks for more only wants to keep this machine busy."""
NONCE_BYTES: Final = 24
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Exchange = Callable[[bytes], bytes]
"""One message to the server, and its answer."""


@lru_cache(maxsize=16)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """SecurityFailed where a certificate or key cannot be read."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_location, cadata=tls.ca_pem)
        if not tls.is_name_checked or not tls.is_verified:
            context.check_hostname = False
        if not tls.is_verified:
            context.verify_mode = ssl.CERT_NONE
        if tls.ciphers:
            context.set_ciphers(tls.ciphers)
        with _as_file(tls.certificate_location, tls.certificate_pem) as certificate:
            if certificate is not None:
                with _as_file(tls.key_location, tls.key_pem) as key:
                    context.load_cert_chain(certificate, key, tls.key_password)
    except (OSError, ValueError) as reason:
        raise SecurityFailed(f"the options kafka.ssl.* cannot be used: {reason}") from None
    return context


@contextmanager
def _as_file(location: str | None, text: str | None) -> Iterator[str | None]:
    """Python reads certificates and keys from files alone: a text stands in one that nobody else can read."""
    if location is not None or text is None:
        yield location
        return
    descriptor, path = tempfile.mkstemp(prefix="moldau-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def authenticate(sasl: Sasl, exchange: Exchange) -> None:
    if sasl.mechanism == "PLAIN":
        exchange(f"\0{sasl.username}\0{sasl.password}".encode())
    else:
        Scram(sasl, secrets.token_urlsafe(NONCE_BYTES)).run(exchange)


class Scram:
    """The client's part of one exchange."""

    def __init__(self, sasl: Sasl, nonce: str) -> None:
        self._hash = HASHES[sasl.mechanism]
        self._password = sasl.password.encode()
        self._nonce = nonce
        name = sasl.username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"

    def run(self, exchange: Exchange) -> None:
        server_first = _text(exchange(f"n,,{self._first}".encode()))
        final, signature = self._answer(server_first)
        proof = _fields(_text(exchange(final.encode())))
        if "e" in proof:
            raise SecurityFailed(f"SCRAM: the broker says {proof['e']}")
        if not hmac.compare_digest(_decoded(proof, "v"), signature):
            raise SecurityFailed("SCRAM: the broker does not know the password either")

    def _answer(self, server_first: str) -> tuple[str, bytes]:
        """The last message, and what the server must say to it."""
        fields = _fields(server_first)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SecurityFailed("SCRAM: the broker answers somebody else")
        if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise SecurityFailed(f"SCRAM: the broker asks for {iterations!r} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(fields, "s"), int(iterations))
        client_key = self._sign(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"  # biws: base64 of `n,,`, no channel binding
        message = f"{self._first},{server_first},{without_proof}".encode()
        signature = self._sign(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_signature = self._sign(self._sign(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}", server_signature

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SecurityFailed("SCRAM: the broker's message is no text") from None


def _fields(message: str) -> dict[str, str]:
    return {
        name: value for name, equals, value in (part.partition("=") for part in message.split(",")) if equals
    }


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except (KeyError, ValueError):
        raise SecurityFailed(f"SCRAM: the broker's message has no {name}=") from None
