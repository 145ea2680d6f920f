"""DeleteAcls (31): refused without an authorizer (`broker.no_authorizer`).

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources
"""

from __future__ import annotations

from moldau.broker.answers.configs import DeleteAclsFilterResult, DeleteAclsResponse
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, MESSAGE, refuse_unknown

API_KEY = 31
VERSIONS = (1, 3)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> DeleteAclsResponse:
    for asked in request.filters:
        refuse_unknown(
            asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
        )
    return DeleteAclsResponse((DeleteAclsFilterResult(ERROR, MESSAGE),) * len(request.filters))
