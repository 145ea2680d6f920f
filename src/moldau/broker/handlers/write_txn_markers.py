"""WriteTxnMarkers (27): end transactions in the partitions that this broker leads, at the word of a coordinator.

- v1: flexible encoding (KIP-482)
- v2: KIP-1228, the request says which transaction version a marker is of; the marker's epoch is checked more strictly

A partition that is named several times for the same end of a transaction gets one marker: in Kafka, too, what is to
be appended is a map by partition (KafkaApis.handleWriteTxnMarkersRequest), and the outcomes are one.

Also how a person ends a transaction that hangs: with coordinator epoch -1 (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.transactions import WritableTxnMarkerResult, WriteTxnMarkersResponse
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import Request, RequestContext, TransactionBroker
from moldau.broker.markers import Wanted, write_markers
from moldau.broker.paced import ELEMENTS_PER_PAUSE
from moldau.coordinator.shard import Producer
from moldau.log.transactions import Marker
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 27
VERSIONS = (1, 2)

ALTER_CLUSTER = right("WriteTxnMarkers", Operation.ALTER, Resource.CLUSTER)
BETWEEN_BROKERS = right("WriteTxnMarkers", Operation.CLUSTER_ACTION, Resource.CLUSTER)


async def handle(
    broker: TransactionBroker, context: RequestContext, request: Request
) -> WriteTxnMarkersResponse:
    wanted: dict[Wanted, None] = {}
    for asked in request.markers:
        for number, one in enumerate(_wanted(asked)):
            wanted[one] = None
            if number % ELEMENTS_PER_PAUSE == 0:
                await context.breathe()
    if may_quietly(broker, context, ALTER_CLUSTER) or may(broker, context, BETWEEN_BROKERS):
        errors = await write_markers(broker, list(wanted), context)
    else:
        errors = [BETWEEN_BROKERS.error] * len(wanted)
    producers: dict[int, dict[str, dict[int, PartitionError]]] = {}
    for number, (one, error) in enumerate(zip(wanted, errors, strict=True)):
        if number % ELEMENTS_PER_PAUSE == 0:
            await context.breathe()
        topics = producers.setdefault(one.producer.producer_id, {})
        name, index = one.place
        topics.setdefault(name, {})[index] = PartitionError(index, error)
    return WriteTxnMarkersResponse(
        tuple(
            WritableTxnMarkerResult(
                producer_id,
                tuple(TopicResult(name, tuple(errors.values())) for name, errors in topics.items()),
            )
            for producer_id, topics in producers.items()
        )
    )


def _wanted(asked: Request) -> Iterator[Wanted]:
    marker = Marker(asked.transaction_result, asked.coordinator_epoch)
    producer = Producer(asked.producer_id, asked.producer_epoch)
    version = getattr(asked, "transaction_version", 0)
    for topic in asked.topics:
        for index in topic.partition_indexes:
            yield Wanted(TopicPartition(topic.name, index), marker, producer, version)
