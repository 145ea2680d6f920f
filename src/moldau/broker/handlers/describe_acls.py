"""DescribeAcls (29): there are none without an authorizer (`broker.no_authorizer`).

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources
"""

from __future__ import annotations

from moldau.broker.answers.configs import DescribeAclsResponse
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, refuse_unknown

API_KEY = 29
VERSIONS = (1, 3)

_MESSAGE = "No Authorizer is configured on the broker"
"""Kafka's brokers answer this one themselves, in other words than the controller, which answers the rest (AclApis)."""


def handle(broker: ClusterView, context: RequestContext, request: Request) -> DescribeAclsResponse:
    refuse_unknown(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(ERROR, _MESSAGE)
