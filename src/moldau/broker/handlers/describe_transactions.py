"""DescribeTransactions (65): the state of transactional ids, with the partitions of their transactions.

- v0: KIP-664
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.transactions import DescribeTransactionsResponse, TopicData, TransactionState
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.coordinator.transaction.messages import Described
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 65
VERSIONS = (0, 0)

DESCRIBE_ID = right("DescribeTransactions", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID)
DESCRIBE_TOPIC = right("DescribeTransactions", Operation.DESCRIBE, Resource.TOPIC)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DescribeTransactionsResponse:
    states = await awaited_once(
        context,
        lambda transactional_id: _describe(broker, context, transactional_id),
        request.transactional_ids,
    )
    return DescribeTransactionsResponse(tuple(states))


async def _describe(
    broker: CoordinatorBroker, context: RequestContext, transactional_id: str
) -> TransactionState:
    if not may(broker, context, DESCRIBE_ID, transactional_id):
        return TransactionState(DESCRIBE_ID.error, transactional_id)
    if not transactional_id:
        return TransactionState(ErrorCode.invalid_request, transactional_id)
    found: Described | ErrorCode | None = await broker.coordinators.transactions.read(
        transactional_id, lambda shard, _moment: shard.describe(transactional_id), lambda error: error
    )
    if not isinstance(found, Described):
        return TransactionState(found or ErrorCode.transactional_id_not_found, transactional_id)
    transaction = found.transaction
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    for topic in list(topics) if broker.guard is not None else ():
        await context.breathe()
        if not may_quietly(broker, context, DESCRIBE_TOPIC, topic):
            del topics[topic]
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout=transaction.timeout_ms,
        transaction_start_time=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(TopicData(topic, tuple(indexes)) for topic, indexes in topics.items()),
    )
