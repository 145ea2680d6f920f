"""DescribeCluster (60): the brokers and the controller. Endpoints of controllers (type 2) do not exist here.

- v0: KIP-700
- v1: KIP-919, the request says whether it wants brokers or controllers
- v2: KIP-1073, fenced brokers can be asked for
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.advertised import endpoint_of
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.metadata import DescribeClusterBroker, DescribeClusterResponse
from moldau.broker.guard import may, operations
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.topic_view import controller_shown
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 60
VERSIONS = (0, 2)

DESCRIBE_CLUSTER = right("DescribeCluster", Operation.DESCRIBE, Resource.CLUSTER)

BROKERS, CONTROLLERS = 1, 2


def handle(broker: ClusterView, context: RequestContext, request: Request) -> DescribeClusterResponse:
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != BROKERS:
        return _refused(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}")
    image = broker.image
    wants_fenced = getattr(request, "include_fenced_brokers", False)
    brokers = [
        DescribeClusterBroker(info.id, *endpoint, info.rack, info.is_fenced)
        for info in (image.registered if wants_fenced else image.brokers).values()
        if (endpoint := endpoint_of(broker, context, info)) is not None
    ]
    may_do = OPERATIONS_UNASKED
    if request.include_cluster_authorized_operations:
        is_told = may(broker, context, DESCRIBE_CLUSTER)
        may_do = operations(broker, context, Resource.CLUSTER) if is_told else 0
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=controller_shown(broker),
        brokers=tuple(brokers),
        cluster_authorized_operations=may_do,
    )


def _refused(error: ErrorCode, reason: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(BROKERS, error, reason)
