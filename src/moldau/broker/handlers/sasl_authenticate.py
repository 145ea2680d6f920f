"""SaslAuthenticate (36) where nothing was begun: on a listener without SASL, or after the client has said who it is.
`broker.authentication` serves all others.

- v0: KIP-152
- v1: KIP-368, the answer says how long the session lasts
- v2: flexible encoding (KIP-482)
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.sasl import SaslAuthenticateResponse
from moldau.broker.interface import Request, RequestContext

API_KEY = 36
VERSIONS = (0, 2)

MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(_broker: object, _context: RequestContext, _request: Request) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.illegal_sasl_state, MESSAGE)
