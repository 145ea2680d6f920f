"""A broker says to another who it is, on a new connection, before anything else but ApiVersions (SASL).

A session that ends is not begun again on its connection: a new one is made in time (`peers.peer`), since requests of
several callers are under way on the old one.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.peers.connection import CONNECT_TIMEOUT_S, PeerConnection
from moldau.peers.errors import BadAnswer, Disconnected
from moldau.runtime.ports import Runtime
from moldau.security.sasl.client import Dialogue, Login
from moldau.security.sasl.exchange import Refused
from moldau.security.sasl.scram import NONCE_BYTES
from moldau.wire.times import milliseconds

SASL_HANDSHAKE, HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, AUTHENTICATE_VERSION = 36, 2
MESSAGES_MAX = 4


async def log_in(runtime: Runtime, connection: PeerConnection, login: Login) -> int:
    """How many milliseconds the session lasts; 0: for ever. Disconnected where one of both is not who it should be."""
    handshake = SimpleNamespace(mechanism=login.mechanism)
    shaken = await connection.ask(SASL_HANDSHAKE, HANDSHAKE_VERSION, handshake, CONNECT_TIMEOUT_S)
    if shaken.error_code:
        enabled = ", ".join(shaken.mechanisms) or "none"
        raise BadAnswer(f"the other broker does not take {login.mechanism}; its mechanisms: {enabled}")
    dialogue = login.messages(runtime.random.bytes(NONCE_BYTES))
    message: bytes | None = next(dialogue)
    lifetime_ms = 0
    for _ in range(MESSAGES_MAX):
        if message is None:
            return lifetime_ms
        said = SimpleNamespace(auth_bytes=message)
        answer = await connection.ask(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, said, CONNECT_TIMEOUT_S)
        if answer.error_code:
            raise Disconnected(f"{answer.error_code.name}: {answer.error_message}")
        lifetime_ms = milliseconds(answer.session_lifetime)
        try:  # in a thread: salting a password takes milliseconds
            message = await runtime.tasks.in_thread(_next, dialogue, bytes(answer.auth_bytes))
        except Refused as error:
            raise BadAnswer(str(error)) from None
    raise BadAnswer("the other broker does not come to an end")


def _next(dialogue: Dialogue, answer: bytes) -> bytes | None:
    """The next message; None where all is said."""
    try:
        return dialogue.send(answer)
    except StopIteration:
        return None
