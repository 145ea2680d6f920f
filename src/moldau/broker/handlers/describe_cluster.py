"""DescribeCluster (60): the brokers and the controller. Endpoints of controllers (type 2) do not exist
here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.broker.advertised import endpoint_of
from moldau.broker.interface import AdminBroker, AdminContext
from moldau.broker.topic_view import CLUSTER_OPERATIONS, OPERATIONS_UNASKED

API_KEY = 60
VERSIONS = (0, 2)

BROKERS, CONTROLLERS = 1, 2


def handle(broker: AdminBroker, context: AdminContext, request: Any) -> object:
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != BROKERS:
        return _refused(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}")
    image = broker.image
    brokers = []
    for info in image.brokers.values():
        if (endpoint := endpoint_of(broker, context, info)) is not None:
            host, port = endpoint
            brokers.append(
                SimpleNamespace(broker_id=info.id, host=host, port=port, rack=info.rack, is_fenced=False)
            )
    wants_operations = request.include_cluster_authorized_operations
    return _answer(
        ErrorCode.none,
        None,
        image.cluster_id,
        image.controller_id,
        tuple(brokers),
        CLUSTER_OPERATIONS if wants_operations else OPERATIONS_UNASKED,
    )


def _refused(error: ErrorCode, reason: str) -> object:
    return _answer(error, reason, "", -1, (), OPERATIONS_UNASKED)


def _answer(
    error: ErrorCode,
    message: str | None,
    cluster_id: str,
    controller_id: int,
    brokers: tuple[SimpleNamespace, ...],
    operations: int,
) -> object:
    return SimpleNamespace(
        throttle_time=0,
        error_code=error,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
