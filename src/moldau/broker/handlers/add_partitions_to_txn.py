"""AddPartitionsToTxn (24): partitions become part of a transaction before anything is written to them.

- v0: from a producer, for its one transaction
- v1: the client waits where it is throttled (KIP-219)
- v2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588)
- v3: flexible encoding (KIP-482)
- v4: KIP-890, from brokers, for several transactions, to add or only to verify
- v5: TRANSACTION_ABORTABLE (KIP-890)

One partition that does not exist, or is not a producer's to write to, spoils the request: then none is added.

Deviation: a list of no transactions is answered with no results. Apache Kafka 4.3 never answers it, nor anything that
comes after it on the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.broker.answers.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited, paced
from moldau.broker.verification import add_here, verify_here
from moldau.coordinator.reply import Reply
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.runtime.line import Slices, in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 24
VERSIONS = (0, 5)

BETWEEN_BROKERS = right("AddPartitionsToTxn", Operation.CLUSTER_ACTION, Resource.CLUSTER)
WRITE_ID = right("AddPartitionsToTxn", Operation.WRITE, Resource.TRANSACTIONAL_ID)
WRITE_TOPIC = right("AddPartitionsToTxn", Operation.WRITE, Resource.TOPIC)

BATCHED_SINCE_VERSION = 4
FENCED_SINCE_VERSION = 2

Outcomes = Mapping[TopicPartition, ErrorCode]
Results = tuple[AddPartitionsToTxnTopicResult, ...]


class Wanted(NamedTuple):
    add: Add
    verify_only: bool
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    """As they were asked for; one that is named twice is answered twice."""


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> AddPartitionsToTxnResponse:
    if context.version >= BATCHED_SINCE_VERSION and not may(broker, context, BETWEEN_BROKERS):
        return AddPartitionsToTxnResponse((), (), BETWEEN_BROKERS.error)
    asked = await in_line(context, _wanted(context.version, request))
    begun = await awaited(context, lambda wanted: _begin(broker, context, wanted), asked)
    results = []
    for wanted, reply in zip(asked, begun, strict=True):  # all are written, then waited for
        await context.breathe()
        results.append(AddPartitionsToTxnResult(wanted.add.transactional_id, await reply))
    return AddPartitionsToTxnResponse(tuple(results), results[0].topic_results if results else ())


def _wanted(version: int, request: Request) -> Slices[list[Wanted]]:
    if version >= BATCHED_SINCE_VERSION:
        wanted = []
        for one in request.transactions:
            producer = (one.transactional_id, one.producer_id, one.producer_epoch)
            wanted.append((yield from _want(producer, one.topics, EPOCH_PER_TRANSACTION, one.verify_only)))
            yield
        return wanted
    producer = (
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    return [(yield from _want(producer, request.v3_and_below_topics, 0, verify_only=False))]


def _want(
    producer: tuple[str, int, int], topics: Iterable[Request], version: int, verify_only: bool
) -> Slices[Wanted]:
    asked = tuple((topic.name, tuple(topic.partitions)) for topic in topics)
    places: dict[TopicPartition, None] = {}
    for topic, indexes in asked:
        for index in indexes:
            places[TopicPartition(topic, index)] = None
            yield
    return Wanted(Add(*producer, tuple(places), version), verify_only, asked)


async def _begin(broker: CoordinatorBroker, context: RequestContext, wanted: Wanted) -> Reply:
    """Ask the coordinator; the reply is the results of one transaction."""
    add, version = wanted.add, context.version
    if version < BATCHED_SINCE_VERSION and not may(broker, context, WRITE_ID, add.transactional_id):
        return _known(_all(wanted, WRITE_ID.error))
    errors = await paced(context, lambda place: _refusal(broker, context, place), add.partitions)
    if any(errors):
        not_attempted = ErrorCode.operation_not_attempted
        outcomes = zip(add.partitions, errors, strict=True)
        return _known(_by_topic({place: error or not_attempted for place, error in outcomes}))
    if not add.transactional_id:
        return _known(_all(wanted, ErrorCode.invalid_request))
    if wanted.verify_only:
        return verify_here(broker.coordinators.transactions, add).map(_by_topic)
    return add_here(broker.coordinators.transactions, add).map(
        lambda error: _all(wanted, _as_known(version, error))
    )


def _known(results: Results) -> Reply:
    reply = Reply(lambda error: error)
    reply.answer(results)
    return reply


def _all(wanted: Wanted, error: ErrorCode) -> Results:
    return tuple(_result(topic, ((index, error) for index in indexes)) for topic, indexes in wanted.topics)


def _as_known(version: int, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.producer_fenced and version < FENCED_SINCE_VERSION:
        return ErrorCode.invalid_producer_epoch
    return error


def _refusal(broker: CoordinatorBroker, context: RequestContext, place: TopicPartition) -> ErrorCode:
    if context.version < BATCHED_SINCE_VERSION and (
        place.topic in INTERNAL_TOPICS or not may(broker, context, WRITE_TOPIC, place.topic)
    ):
        return WRITE_TOPIC.error  # a producer has no business there
    topic = broker.image.topics.get(place.topic)
    is_there = topic is not None and 0 <= place.partition < len(topic.partitions)
    return ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition


def _by_topic(outcomes: Outcomes) -> Results:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, index), error in outcomes.items():
        topics.setdefault(topic, []).append((index, error))
    return tuple(_result(topic, partitions) for topic, partitions in topics.items())


def _result(topic: str, partitions: Iterable[tuple[int, ErrorCode]]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        topic, tuple(AddPartitionsToTxnPartitionResult(index, error) for index, error in partitions)
    )
