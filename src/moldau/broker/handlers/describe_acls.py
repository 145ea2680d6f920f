"""DescribeAcls (29): there are none without an authorizer (`broker.no_authorizer`)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, refuse_unknown

API_KEY = 29
VERSIONS = (1, 3)

#: Kafka's brokers answer this one themselves, in other words than the controller, which answers the rest.
_MESSAGE = "No Authorizer is configured on the broker"


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    refuse_unknown(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return SimpleNamespace(throttle_time=0, error_code=ERROR, error_message=_MESSAGE, resources=())
