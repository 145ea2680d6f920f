"""DescribeAcls (29): the ACLs that a filter means, by the resources that they are for.

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources

Every broker knows them all (`broker.guard`), and answers for itself.
"""

from __future__ import annotations

from moldau.base.errors import KafkaError
from moldau.broker.acl_requests import DISABLED, filter_of
from moldau.broker.answers.acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from moldau.broker.guard import may
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.paced import ELEMENTS_PER_PAUSE
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource, ResourcePattern
from moldau.security.rights import right

API_KEY = 29
VERSIONS = (1, 3)

DESCRIBE_CLUSTER = right("DescribeAcls", Operation.DESCRIBE, Resource.CLUSTER)
NO_AUTHORIZER = "No Authorizer is configured on the broker"
"""Kafka's brokers answer this one themselves, in other words than the controller, which answers the rest (AclApis)."""


def handle(broker: ClusterView, context: RequestContext, request: Request) -> Slices[DescribeAclsResponse]:
    wanted = filter_of(request)
    guard = broker.guard
    if guard is None:
        return DescribeAclsResponse(DISABLED, NO_AUTHORIZER)
    if not may(broker, context, DESCRIBE_CLUSTER):
        return DescribeAclsResponse(DESCRIBE_CLUSTER.error)
    found = [] if isinstance(wanted, KafkaError) else (yield from guard.described(wanted))
    by_pattern: dict[ResourcePattern, list[AclDescription]] = {}
    for number, (resource, pattern_type, name, entry) in enumerate(found):
        if number % ELEMENTS_PER_PAUSE == 0:
            yield
        by_pattern.setdefault(ResourcePattern(resource, pattern_type, name), []).append(
            AclDescription(*entry)
        )
    resources = []
    for number, ((resource, pattern_type, name), entries) in enumerate(by_pattern.items()):
        if number % ELEMENTS_PER_PAUSE == 0:
            yield
        resources.append(DescribeAclsResource(resource, name, pattern_type, tuple(entries)))
    return DescribeAclsResponse(resources=tuple(resources))
