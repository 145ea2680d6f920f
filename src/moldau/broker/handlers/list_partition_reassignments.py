"""ListPartitionReassignments (46): nothing moves where a broker is alone (`controller.reassignments`)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.interface import ClusterView, Request, RequestContext

API_KEY = 46
VERSIONS = (0, 0)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    return SimpleNamespace(throttle_time=0, error_code=ErrorCode.none, error_message=None, topics=())
