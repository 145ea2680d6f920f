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
        try:
            identity, name, password = message.decode().split("\0")
        except ValueError:
            raise Refused("not three texts with NUL between") from None
        if not name:
            raise Refused("username not specified")
        if not password:
            raise Refused("password not specified")
        if not self._users.knows(name, password):
            raise Refused("wrong name or password", "Authentication failed: Invalid username or password")
        if identity not in ("", name):
            raise Refused(
                "another identity is asked for",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.user = name
        return b""


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
