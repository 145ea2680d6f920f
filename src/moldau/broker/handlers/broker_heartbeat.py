"""BrokerHeartbeat (63): a broker asks to serve, to be fenced, or to shut down in good order (KIP-631).

- v0: the first
- v1: KIP-858, data folders that are offline, not looked at (`cluster` has REPORT)

That it lives is said by its session in the store; how far it has come, by its polls for the cluster's changes.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.cluster import BrokerHeartbeatResponse
from moldau.broker.guard import may
from moldau.broker.interface import ControllerBroker, Request, RequestContext
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 63
VERSIONS = (0, 1)
IS_INTERNAL = True

BETWEEN_BROKERS = right("BrokerHeartbeat", Operation.CLUSTER_ACTION, Resource.CLUSTER)


async def handle(
    broker: ControllerBroker, context: RequestContext, request: Request
) -> BrokerHeartbeatResponse:
    if not may(broker, context, BETWEEN_BROKERS):
        return BrokerHeartbeatResponse(BETWEEN_BROKERS.error)
    controller = broker.active_controller
    if controller is None:
        return BrokerHeartbeatResponse(ErrorCode.not_controller)
    broker.office.note_seen(request.broker_id)
    try:
        beat = await controller.heartbeat(
            request.broker_id,
            request.broker_epoch,
            controller.position_of(request.broker_id),
            wants_fence=request.want_fence,
            wants_shut_down=request.want_shut_down,
        )
    except KafkaError as error:
        return BrokerHeartbeatResponse(error.code)
    return BrokerHeartbeatResponse(ErrorCode.none, *beat)
