"""SASL/PLAIN (RFC 4616), the server's side, with the users of the listener's JAAS line (Kafka's PlainSaslServer).

A password that is wrong and a user who is not there take the same time and get the same answer. Unlike Kafka's, a
message with anything behind the password is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from moldau.config.jaas import LoginModule
from moldau.security.sasl.exchange import PLAIN, NoTokens, Refused

USER_OPTION = "user_"
PARTS = 3
WRONG = "Authentication failed: Invalid username or password"
_NOBODY = bytes(32)


class PlainUsers:
    """Digests of their passwords: comparing these tells nothing of how much of a guess is right."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}

    @classmethod
    def of(cls, line: LoginModule) -> PlainUsers:
        """`user_NAME="password"` each."""
        options = line.options.items()
        return cls(
            {name[len(USER_OPTION) :]: value for name, value in options if name.startswith(USER_OPTION)}
        )

    def __len__(self) -> int:
        return len(self._digests)

    def knows(self, name: str, password: str) -> bool:
        expected = self._digests.get(name, _NOBODY)
        return hmac.compare_digest(expected, _digest(password))


class PlainExchange(NoTokens):
    __slots__ = ("_users", "user")

    mechanism = PLAIN

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        if self.user is not None:
            raise Refused("a second message")
        parts = message.split(b"\0", PARTS)
        if len(parts) != PARTS:
            text = f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {len(parts)}"
            raise Refused("not three texts with NUL between", text)
        try:
            identity, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise Refused("not text in UTF-8", WRONG) from None
        if not name:
            raise Refused("no name", "Authentication failed: username not specified")
        if not password:
            raise Refused("no password", "Authentication failed: password not specified")
        if not self._users.knows(name, password):
            raise Refused("wrong name or password", WRONG)
        if identity not in ("", name):
            raise Refused(
                "another identity is asked for",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.user = name
        return b""


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
