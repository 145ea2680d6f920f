"""AllocateProducerIds (67): a block of producer ids for a broker, never given twice.

- v0: KIP-730
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.cluster import AllocateProducerIdsResponse
from moldau.broker.guard import may
from moldau.broker.interface import ControllerBroker, Request, RequestContext
from moldau.controller.brokers import check_epoch
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 67
VERSIONS = (0, 0)
IS_INTERNAL = True

BETWEEN_BROKERS = right("AllocateProducerIds", Operation.CLUSTER_ACTION, Resource.CLUSTER)


async def handle(
    broker: ControllerBroker, context: RequestContext, request: Request
) -> AllocateProducerIdsResponse:
    if not may(broker, context, BETWEEN_BROKERS):
        return AllocateProducerIdsResponse(BETWEEN_BROKERS.error)
    controller = broker.active_controller
    if controller is None:
        return AllocateProducerIdsResponse(ErrorCode.not_controller)
    try:
        check_epoch(controller.image, request.broker_id, request.broker_epoch)
        first, length = await controller.allocate_producer_ids()
    except KafkaError as error:
        return AllocateProducerIdsResponse(error.code)
    return AllocateProducerIdsResponse(ErrorCode.none, first, length)
