"""DeleteAcls (31): refused without an authorizer (`broker.no_authorizer`)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, MESSAGE, refuse_unknown

API_KEY = 31
VERSIONS = (1, 3)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    for asked in request.filters:
        refuse_unknown(
            asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
        )
    refused = SimpleNamespace(error_code=ERROR, error_message=MESSAGE, matching_acls=())
    return SimpleNamespace(throttle_time=0, filter_results=(refused,) * len(request.filters))
