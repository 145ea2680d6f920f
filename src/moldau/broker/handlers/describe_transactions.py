"""DescribeTransactions (65): the state of transactional ids, with the partitions of their transactions.

- v0: KIP-664
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.transactions import DescribeTransactionsResponse, TopicData, TransactionState
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.coordinator.transaction.messages import Described

API_KEY = 65
VERSIONS = (0, 0)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DescribeTransactionsResponse:
    states = await awaited_once(
        context, lambda transactional_id: _describe(broker, transactional_id), request.transactional_ids
    )
    return DescribeTransactionsResponse(tuple(states))


async def _describe(broker: CoordinatorBroker, transactional_id: str) -> TransactionState:
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
