"""AddOffsetsToTxn (25): a group's partition of `__consumer_offsets` becomes part of a transaction.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588)
- v3: flexible encoding (KIP-482)
- v4: TRANSACTION_ABORTABLE (KIP-890)

Offsets of the group can then be committed with it (TxnOffsetCommit), to count when it is committed.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.answers.transactions import AddOffsetsToTxnResponse
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.verification import add_here
from moldau.coordinator.transaction.messages import Add
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 25
VERSIONS = (0, 4)

WRITE_ID = right("AddOffsetsToTxn", Operation.WRITE, Resource.TRANSACTIONAL_ID)
READ_GROUP = right("AddOffsetsToTxn", Operation.READ, Resource.GROUP)

FENCED_SINCE_VERSION = 2


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> AddOffsetsToTxnResponse:
    error = await _add(broker, context, request)
    if error is ErrorCode.producer_fenced and context.version < FENCED_SINCE_VERSION:
        error = ErrorCode.invalid_producer_epoch
    return AddOffsetsToTxnResponse(error)


async def _add(broker: CoordinatorBroker, context: RequestContext, request: Request) -> ErrorCode:
    if not may(broker, context, WRITE_ID, request.transactional_id):
        return WRITE_ID.error
    if not may(broker, context, READ_GROUP, request.group_id):
        return READ_GROUP.error
    if not request.transactional_id:
        return ErrorCode.invalid_request
    index = await broker.coordinators.partition_of(CONSUMER_OFFSETS, request.group_id)
    if index is None:
        return broker.coordinators.error_without(CONSUMER_OFFSETS)
    place = TopicPartition(CONSUMER_OFFSETS, index)
    add = Add(request.transactional_id, request.producer_id, request.producer_epoch, (place,))
    error: ErrorCode = await add_here(broker.coordinators.transactions, add)
    return error
