"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), the server's side: Kafka's ScramSaslServer.

A name that nobody has gets a salt and a count like any other, and is refused where a wrong password is: nothing tells
the two apart. Nothing that was said to one client helps another: each exchange has a nonce of its own. As in Kafka
there is no channel binding. Beyond Kafka the client's last message must name the header of its first one, and
extensions that it marks as mandatory are refused.

Delegation tokens (`tokenauth`) are left out.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

from moldau.base.limits import SCRAM_MESSAGE_BYTES_MAX
from moldau.security.sasl.credentials import ITERATIONS_MIN, Credential, Mechanism
from moldau.security.sasl.exchange import NoTokens, Refused

NONCE_BYTES = 24

SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{SASLNAME}))?,)"
    rf"(?P<bare>n=(?P<name>{SASLNAME}),r=(?P<nonce>{PRINTABLE})(?P<extensions>{EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{BASE64}),r=(?P<nonce>{PRINTABLE}){EXTENSIONS}),p=(?P<proof>{BASE64})"
)

CredentialOf = Callable[[str], tuple[Credential, bool]]
"""Of a name, and whether somebody has it."""


class ScramExchange(NoTokens):
    __slots__ = (
        "_bare",
        "_credential",
        "_credential_of",
        "_first",
        "_header",
        "_mechanism",
        "_name",
        "_nonce",
        "user",
    )

    def __init__(self, mechanism: Mechanism, credential_of: CredentialOf, random: bytes) -> None:
        """`random`: NONCE_BYTES of it."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = b64encode(random).decode()
        self._name: str | None = None
        self._credential: Credential | None = None  # None where nobody has the name
        self._header = self._bare = self._first = ""
        self.user: str | None = None

    @property
    def mechanism(self) -> str:
        return self._mechanism.title

    def answer(self, message: bytes) -> bytes:
        if len(message) > SCRAM_MESSAGE_BYTES_MAX:
            raise Refused("a message that is too long")
        if self.user is not None:
            raise Refused("a third message")
        text = message.decode("latin-1")  # what is not ASCII fits no pattern
        return (self._begin(text) if self._name is None else self._end(text)).encode()

    def _begin(self, message: str) -> str:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise Refused("no SCRAM client first message")
        if ",tokenauth=true" in found["extensions"].lower():
            raise Refused("a delegation token")
        if ",m=" in found["extensions"]:
            raise Refused("a mandatory extension")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["authzid"] not in (None, name):
            raise Refused(
                "another identity is asked for",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        credential, is_known = self._credential_of(name)
        if credential.iterations < ITERATIONS_MIN:
            raise Refused("credentials with too few iterations")
        self._name, self._header, self._bare = name, found["header"], found["bare"]
        self._nonce = found["nonce"] + self._nonce
        self._credential = credential
        if not is_known:
            self._name = ""
        salt = b64encode(credential.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._first

    def _end(self, message: str) -> str:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise Refused("no SCRAM client final message")
        if found["nonce"] != self._nonce:
            raise Refused("the nonce of another exchange")
        if b64decode(found["channel"]) != self._header.encode():
            raise Refused("another header than in the first message")
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None
        transcript = f"{self._bare},{self._first},{found['unproved']}".encode()
        signature = mechanism.sign(credential.stored_key, transcript)
        proof = b64decode(found["proof"])
        if len(proof) != len(signature):
            raise Refused("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)
        if not is_right or not self._name:
            raise Refused("wrong name or password")
        self.user, self._credential = self._name, None
        return f"v={b64encode(mechanism.sign(credential.server_key, transcript)).decode()}"
