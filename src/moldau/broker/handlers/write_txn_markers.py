"""WriteTxnMarkers (27): end transactions in the partitions that this broker leads, at the word of a coordinator.

Also how a person ends a transaction that hangs: with coordinator epoch -1 (KIP-664).

- v2: KIP-1228, the request says which transaction version a marker is of; the marker's epoch is checked more strictly.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.transactions import WritableTxnMarkerResult, WriteTxnMarkersResponse
from moldau.broker.interface import Request, RequestContext, TransactionBroker
from moldau.broker.markers import Wanted, write_markers
from moldau.coordinator.shard import Producer
from moldau.log.transactions import Marker

API_KEY = 27
VERSIONS = (1, 2)


async def handle(
    broker: TransactionBroker, context: RequestContext, request: Request
) -> WriteTxnMarkersResponse:
    wanted = [one for asked in request.markers for one in _wanted(asked)]
    errors = await write_markers(broker, wanted)
    producers: dict[int, dict[str, dict[int, PartitionError]]] = {}
    for one, error in zip(wanted, errors, strict=True):
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
