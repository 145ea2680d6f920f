"""CreateAcls (30): refused without an authorizer (`broker.no_authorizer`).

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources
"""

from __future__ import annotations

from moldau.broker.answers.configs import AclCreationResult, CreateAclsResponse
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.no_authorizer import ERROR, MESSAGE, refuse_unknown

API_KEY = 30
VERSIONS = (1, 3)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> CreateAclsResponse:
    for acl in request.creations:
        refuse_unknown(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    return CreateAclsResponse((AclCreationResult(ERROR, MESSAGE),) * len(request.creations))
