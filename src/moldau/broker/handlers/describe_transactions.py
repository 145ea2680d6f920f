"""DescribeTransactions (65): the state of transactional ids, with the partitions of their transactions (KIP-664)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.transaction.messages import Described

API_KEY = 65
VERSIONS = (0, 0)


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
    states = [await _describe(broker, transactional_id) for transactional_id in request.transactional_ids]
    return SimpleNamespace(throttle_time=0, transaction_states=tuple(states))


async def _describe(broker: CoordinatorBroker, transactional_id: str) -> object:
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.invalid_request)
    found = await broker.coordinators.transactions.read(
        transactional_id, lambda shard, _moment: shard.describe(transactional_id), lambda error: error
    )
    if not isinstance(found, Described):
        return _refused(transactional_id, found or ErrorCode.transactional_id_not_found)
    transaction = found.transaction
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    return SimpleNamespace(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout=transaction.timeout_ms,
        transaction_start_time=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            SimpleNamespace(topic=topic, partitions=tuple(indexes)) for topic, indexes in topics.items()
        ),
    )


def _refused(transactional_id: str, error: ErrorCode) -> object:
    return SimpleNamespace(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=0,
        transaction_start_time=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )
