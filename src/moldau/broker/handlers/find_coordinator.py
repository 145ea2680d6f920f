"""FindCoordinator (10): which broker coordinates a group.

A broker on its own coordinates every group. Transactions and share groups are not served yet, so asking for their
coordinators gets INVALID_REQUEST with that reason rather than an address that would not help.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.broker.advertised import advertised_endpoint

API_KEY = 10
VERSIONS = (0, 6)

BATCHED_SINCE_VERSION = 4
KEY_TYPE_GROUP = 0
UNKNOWN_KEY_TYPE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to"
    " an incompatible broker. See the broker logs for more details."
)
KEY_TYPES = {1: "transactions", 2: "share groups"}


def handle(broker: Any, context: Any, request: Any) -> object:
    key_type: int = getattr(request, "key_type", KEY_TYPE_GROUP)
    if context.version >= BATCHED_SINCE_VERSION:
        coordinators = tuple(_find(broker, context, key_type, key) for key in request.coordinator_keys)
        return SimpleNamespace(throttle_time=0, coordinators=coordinators)
    found = _find(broker, context, key_type, request.key)
    found.throttle_time = 0
    if found.error_code == ErrorCode.none:
        found.error_message = "NONE"
    return found


def _find(broker: Any, context: Any, key_type: int, key: str) -> SimpleNamespace:
    if key_type != KEY_TYPE_GROUP:
        reason = (
            f"{KEY_TYPES[key_type]} are not served by this broker"
            if key_type in KEY_TYPES
            else UNKNOWN_KEY_TYPE
        )
        return _answer(key, ErrorCode.invalid_request, reason, -1, "", -1)
    host, port = advertised_endpoint(broker, context)
    return _answer(key, ErrorCode.none, "", broker.node_id, host, port)


def _answer(key: str, error: ErrorCode, message: str, node_id: int, host: str, port: int) -> SimpleNamespace:
    return SimpleNamespace(
        key=key, error_code=error, error_message=message, node_id=node_id, host=host, port=port
    )
