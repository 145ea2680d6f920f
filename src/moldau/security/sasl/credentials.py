"""What is kept of a password: a user's SCRAM credentials (RFC 5802), in the text of Kafka's ScramCredentialUtils.

    salt=...,stored_key=...,server_key=...,iterations=4096

The cluster keeps those of one user together, as a `ConfigChanged` with ResourceType.USER: its name is the user's, each
of its keys a mechanism, with the text as the value. Whoever reads it cannot log in with it, but can try passwords
against it; so it is shown to nobody.

Who is not there gets credentials as well (`Decoys`), so that nobody learns from the first answer whether a name is
known. They come from a secret that the cluster keeps, so that all brokers say the same.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from moldau.security.sasl import DECOYS

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""Kafka's ScramMechanism and ScramControlManager."""
SALT_BYTES = 32
SECRET_BYTES = 32
DECOY_SECRET = "secret"


class Mechanism(IntEnum):
    """With its number in requests (Kafka's ScramMechanism.type)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def title(self) -> str:
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash_name(self) -> str:
        return self.name.replace("_", "").lower()

    @property
    def hash_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size

    def sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def digest(self, message: bytes) -> bytes:
        return hashlib.new(self.hash_name, message).digest()

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """RFC 5802's SaltedPassword; some milliseconds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


MECHANISMS = {mechanism.title: mechanism for mechanism in Mechanism}


@dataclass(frozen=True, slots=True)
class Credential:
    """Of one user and one mechanism."""

    mechanism: Mechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
        stored_key = mechanism.digest(mechanism.sign(salted, b"Client Key"))
        return cls(mechanism, salt, stored_key, mechanism.sign(salted, b"Server Key"), iterations)

    @classmethod
    def of_password(cls, mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> Credential:
        return cls.of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)

    @property
    def text(self) -> str:
        parts = ("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key)
        keys = ",".join(f"{name}={b64encode(value).decode()}" for name, value in parts)
        return f"{keys},iterations={self.iterations}"

    @classmethod
    def parse(cls, mechanism: Mechanism, text: str) -> Credential:
        """ValueError or KeyError where it is none; neither says more than the part's name."""
        parts = dict(part.split("=", 1) for part in text.split(","))
        salt, stored_key, server_key = (b64decode(parts[n]) for n in ("salt", "stored_key", "server_key"))
        return cls(mechanism, salt, stored_key, server_key, int(parts["iterations"]))


def credential_of(
    users: Mapping[str, Mapping[str, str]], name: str, mechanism: Mechanism
) -> Credential | None:
    """Of a user, in what the cluster keeps of all; None where there is none that can be read."""
    text = users.get(name, {}).get(mechanism.title) if name != DECOYS else None
    try:
        return None if text is None else Credential.parse(mechanism, text)
    except (ValueError, KeyError):
        return None


class Decoys:
    """What those have who are not there: always the same for a name, and never right."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of(cls, users: Mapping[str, Mapping[str, str]], otherwise: bytes) -> Decoys:
        """With the cluster's secret; `otherwise` while it has none, as it has no users then."""
        text = users.get(DECOYS, {}).get(DECOY_SECRET, "")
        return cls(b64decode(text) or otherwise)

    def of_name(self, name: str, mechanism: Mechanism) -> Credential:
        known = f"{mechanism.title}\0{name}".encode("utf-8", "replace")
        salt, stored_key, server_key = (
            hmac.digest(self._secret, part + known, "sha512") for part in (b"salt", b"stored", b"server")
        )
        size = mechanism.hash_bytes
        return Credential(mechanism, salt[:SALT_BYTES], stored_key[:size], server_key[:size], ITERATIONS_MIN)
