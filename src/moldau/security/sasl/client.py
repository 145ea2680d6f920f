"""The side of a broker that connects to another with SASL: PLAIN and SCRAM.

`messages` is the dialogue: a generator of what to send, which is given the answers. SCRAM makes sure that the other
side knows the password too, and that it asks for no more work than a broker would. Unlike Kafka's client no extension
is sent.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Generator

from moldau.base.limits import SCRAM_MESSAGE_BYTES_MAX
from moldau.config.sasl import BrokerLogin
from moldau.security.sasl.credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, Mechanism
from moldau.security.sasl.exchange import PLAIN, Refused
from moldau.security.sasl.scram import BASE64, EXTENSIONS, PRINTABLE

HEADER = "n,,"
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{PRINTABLE}),s=(?P<salt>{BASE64}),i=(?P<count>[0-9]{{1,6}}){EXTENSIONS}"
)
_SERVER_FINAL = re.compile(rf"v=(?P<signature>{BASE64}){EXTENSIONS}")

Dialogue = Generator[bytes, bytes, None]


class Login(BrokerLogin):
    """Who this side is."""

    __slots__ = ()

    def messages(self, random: bytes) -> Dialogue:
        """Refused where the other side is not who it should be."""
        if self.mechanism == PLAIN:
            yield f"\0{self.user}\0{self.password}".encode()
        else:
            yield from _scram(
                MECHANISMS[self.mechanism], self.user, self.password, b64encode(random).decode()
            )


def _scram(mechanism: Mechanism, user: str, password: str, nonce: str) -> Dialogue:
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    first = _text((yield (HEADER + bare).encode()))
    found = _SERVER_FIRST.fullmatch(first)
    if found is None or not found["nonce"].startswith(nonce) or found["nonce"] == nonce:
        raise Refused("the other broker's first SCRAM message is none")
    iterations = int(found["count"])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise Refused(f"the other broker asks for {iterations} iterations")
    salted = mechanism.salted(password, b64decode(found["salt"]), iterations)
    unproved = f"c={b64encode(HEADER.encode()).decode()},r={found['nonce']}"
    transcript = f"{bare},{first},{unproved}".encode()
    client_key = mechanism.sign(salted, b"Client Key")
    signature = mechanism.sign(mechanism.digest(client_key), transcript)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = _SERVER_FINAL.fullmatch(_text((yield f"{unproved},p={b64encode(proof).decode()}".encode())))
    expected = mechanism.sign(mechanism.sign(salted, b"Server Key"), transcript)
    if answer is None or not hmac.compare_digest(b64decode(answer["signature"]), expected):
        raise Refused("the other broker does not know the password")


def _text(message: bytes) -> str:
    if len(message) > SCRAM_MESSAGE_BYTES_MAX:
        raise Refused("the other broker's SCRAM message is too long")
    return message.decode("latin-1")
