"""UnregisterBroker (64): a broker is gone for good, and its place is free.

- v0: KIP-631
"""

from __future__ import annotations

from moldau.base.errors import KafkaError
from moldau.broker.answers.cluster import UnregisterBrokerResponse
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 64
VERSIONS = (0, 0)

ALTER_CLUSTER = right("UnregisterBroker", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> UnregisterBrokerResponse:
    if not may(broker, context, ALTER_CLUSTER):
        return UnregisterBrokerResponse(ALTER_CLUSTER.error)
    try:
        await broker.controller.unregister_broker(request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(error.code, error.message)
    return UnregisterBrokerResponse()
