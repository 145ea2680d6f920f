"""One client's way through a mechanism: what the server's side of all mechanisms has in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
PRINCIPAL_TYPE = "User"


class Refused(Exception):
    """The client does not prove who it is. It is told `text`; without one it is told what everybody is, which says
    nothing of why. The reason itself is for the log: it has no secret in it, and nothing of what the client sent.
    """

    def __init__(self, reason: str, text: str | None = None) -> None:
        super().__init__(reason)
        self.text = text


class TokenToCheck(NamedTuple):
    """A token that somebody must check who may have to wait for keys; then `Exchange.checked` goes on."""

    token: str

    def __repr__(self) -> str:
        return "TokenToCheck(...)"


class Identity(NamedTuple):
    """Whom a token names, and until when."""

    name: str
    expires_ms: int


class Exchange(Protocol):
    """The server's side of a mechanism, for one client. After `Refused` it is not used any more."""

    @property
    def mechanism(self) -> str: ...

    @property
    def user(self) -> str | None:
        """Who it is; None until that is proved."""
        ...

    @property
    def expires_ms(self) -> int | None:
        """When what proves it ends, if it does."""
        ...

    def answer(self, message: bytes) -> bytes | TokenToCheck:
        """What is said to the client's next message."""
        ...

    def checked(self, identity: Identity | None) -> bytes:
        """What is said to a client whose token was checked; None: it names nobody."""
        ...


class NoTokens:
    """For mechanisms without tokens."""

    __slots__ = ()

    @property
    def expires_ms(self) -> int | None:
        return None

    def checked(self, identity: Identity | None) -> bytes:
        raise Refused("a token of a mechanism that has none")
