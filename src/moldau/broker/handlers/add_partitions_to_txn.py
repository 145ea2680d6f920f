"""AddPartitionsToTxn (24): partitions become part of a transaction before anything is written to them.

Up to version 3 from a producer, for its one transaction; from version 4 on from brokers, for several, to add or only to
verify (KIP-890). One partition that does not exist, or is not a producer's to write to, spoils the request: then none
is added.

Deviation: a list of no transactions is answered with no results. Apache Kafka 4.3 never answers it, nor anything that
comes after it on the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.metadata.image import INTERNAL_TOPICS

API_KEY = 24
VERSIONS = (0, 5)

BATCHED_SINCE_VERSION = 4
FENCED_SINCE_VERSION = 2

Outcomes = Mapping[TopicPartition, ErrorCode]


class Wanted(NamedTuple):
    add: Add
    verify_only: bool


async def handle(broker: Any, context: Any, request: Any) -> object:
    results = [
        SimpleNamespace(
            transactional_id=wanted.add.transactional_id,
            topic_results=_by_topic(await _outcomes(broker, context.version, wanted)),
        )
        for wanted in _wanted(context.version, request)
    ]
    return SimpleNamespace(
        throttle_time=0,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(results),
        results_by_topic_v3_and_below=results[0].topic_results if results else (),
    )


def _wanted(version: int, request: Any) -> list[Wanted]:
    if version >= BATCHED_SINCE_VERSION:
        return [
            Wanted(
                _add(
                    one.transactional_id,
                    one.producer_id,
                    one.producer_epoch,
                    one.topics,
                    EPOCH_PER_TRANSACTION,
                ),
                one.verify_only,
            )
            for one in request.transactions
        ]
    add = _add(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
        0,
    )
    return [Wanted(add, verify_only=False)]


def _add(transactional_id: str, producer_id: int, epoch: int, topics: Iterable[Any], version: int) -> Add:
    places = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    return Add(transactional_id, producer_id, epoch, tuple(dict.fromkeys(places)), version)


async def _outcomes(broker: Any, version: int, wanted: Wanted) -> Outcomes:
    add = wanted.add
    refused = {place: error for place in add.partitions if (error := _refusal(broker, version, place))}
    if refused:
        return {place: refused.get(place, ErrorCode.operation_not_attempted) for place in add.partitions}
    if not add.transactional_id:
        return dict.fromkeys(add.partitions, ErrorCode.invalid_request)
    transactions = broker.coordinators.transactions
    if wanted.verify_only:
        outcomes: Outcomes = await transactions.read(
            add.transactional_id,
            lambda shard, _moment: shard.verify(add),
            lambda error: dict.fromkeys(add.partitions, error),
        )
        return outcomes
    error = await transactions.write(
        add.transactional_id, lambda shard, moment, reply: shard.add(add, reply, moment), lambda error: error
    )
    if error is ErrorCode.producer_fenced and version < FENCED_SINCE_VERSION:
        error = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(add.partitions, error)


def _refusal(broker: Any, version: int, place: TopicPartition) -> ErrorCode:
    if version < BATCHED_SINCE_VERSION and place.topic in INTERNAL_TOPICS:
        return ErrorCode.topic_authorization_failed  # a producer has no business there
    topic = broker.image.topics.get(place.topic)
    is_there = topic is not None and 0 <= place.partition < len(topic.partitions)
    return ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition


def _by_topic(outcomes: Outcomes) -> tuple[object, ...]:
    topics: dict[str, list[object]] = {}
    for (topic, index), error in outcomes.items():
        topics.setdefault(topic, []).append(
            SimpleNamespace(partition_index=index, partition_error_code=error)
        )
    return tuple(
        SimpleNamespace(name=topic, results_by_partition=tuple(partitions))
        for topic, partitions in topics.items()
    )
