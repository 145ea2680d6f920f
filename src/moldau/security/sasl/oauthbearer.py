"""OAUTHBEARER (RFC 7628), the server's side: Kafka's OAuthBearerSaslServer.

Who the token names is found out elsewhere (`TokenToCheck`), as keys may have to be fetched. A token that names nobody
is answered with RFC 7628's error in JSON; the client says that it has read it, and is refused.
"""

from __future__ import annotations

import re

from moldau.security.sasl.exchange import OAUTHBEARER, Identity, Refused, TokenToCheck
from moldau.security.sasl.scram import SASLNAME

INVALID_TOKEN = '{"status":"invalid_token"}'
UNDERSTOOD = b"\x01"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{SASLNAME}))?,\x01auth=(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)"
    r"(?P<extensions>(?:\x01[A-Za-z]+=[\x21-\x7e \t\r\n]+)*)\x01\x01",
    re.ASCII,
)


class OAuthBearerExchange:
    __slots__ = ("_authzid", "_is_begun", "_is_invalid", "expires_ms", "user")

    mechanism = OAUTHBEARER

    def __init__(self) -> None:
        self._authzid: str | None = None
        self._is_begun = False
        self._is_invalid = False
        self.user: str | None = None
        self.expires_ms: int | None = None

    def answer(self, message: bytes) -> TokenToCheck:
        if self._is_invalid:
            raise Refused("a token that names nobody", INVALID_TOKEN if message == UNDERSTOOD else None)
        if self._is_begun:
            raise Refused("a second message")
        self._is_begun = True
        found = _FIRST.fullmatch(message.decode("latin-1"))
        if found is None or "\x01auth=" in found["extensions"]:
            raise Refused("no OAUTHBEARER client first message")
        if found["scheme"].lower() != "bearer":
            raise Refused("a scheme that is not Bearer")
        self._authzid = found["authzid"]
        return TokenToCheck(found["token"])

    def checked(self, identity: Identity | None) -> bytes:
        if identity is None:
            self._is_invalid = True
            return INVALID_TOKEN.encode()
        if self._authzid not in (None, identity.name):
            raise Refused(
                "another identity is asked for",
                f"Authentication failed: Client requested an authorization id ({self._authzid}) "
                f"that is different from the token's principal name ({identity.name})",
            )
        self.user, self.expires_ms = identity.name, identity.expires_ms
        return b""
