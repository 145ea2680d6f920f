"""CreateAcls (30): refused without an authorizer (`broker.no_authorizer`)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, MESSAGE, refuse_unknown

API_KEY = 30
VERSIONS = (1, 3)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    for acl in request.creations:
        refuse_unknown(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    refused = SimpleNamespace(error_code=ERROR, error_message=MESSAGE)
    return SimpleNamespace(throttle_time=0, results=(refused,) * len(request.creations))
