"""SaslHandshake (17) where there is nothing to begin: on a listener without SASL, or after the client has said who it
is. `broker.authentication` serves all others.

- v0: messages of the mechanism follow as they are
- v1: KIP-152, they follow in SaslAuthenticate requests
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.sasl import SaslHandshakeResponse
from moldau.broker.interface import Request, RequestContext

API_KEY = 17
VERSIONS = (0, 1)


def handle(_broker: object, _context: RequestContext, _request: Request) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.illegal_sasl_state)
