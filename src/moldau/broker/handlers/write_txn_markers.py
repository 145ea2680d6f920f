"""WriteTxnMarkers (27): end transactions in the partitions that this broker leads, at the word of a coordinator.

Also how a person ends a transaction that hangs: with coordinator epoch -1 (KIP-664).

- v2: KIP-1228, the request says which transaction version a marker is of; the marker's epoch is checked more strictly.
"""

from __future__ import annotations

from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.transactions import WritableTxnMarkerResult, WriteTxnMarkersResponse
from moldau.broker.interface import Request, RequestContext, TransactionBroker
from moldau.broker.markers import write_marker
from moldau.coordinator.shard import Producer
from moldau.log.transactions import Marker

API_KEY = 27
VERSIONS = (1, 2)


async def handle(
    broker: TransactionBroker, context: RequestContext, request: Request
) -> WriteTxnMarkersResponse:
    producers: dict[int, dict[str, dict[int, PartitionError]]] = {}
    for wanted in request.markers:
        marker = Marker(wanted.transaction_result, wanted.coordinator_epoch)
        producer = Producer(wanted.producer_id, wanted.producer_epoch)
        version = getattr(wanted, "transaction_version", 0)
        for topic in wanted.topics:
            for index in topic.partition_indexes:
                topics = producers.setdefault(wanted.producer_id, {})
                place = TopicPartition(topic.name, index)
                error = await write_marker(broker, place, marker, producer, version)
                topics.setdefault(topic.name, {})[index] = PartitionError(index, error)
    return WriteTxnMarkersResponse(
        tuple(
            WritableTxnMarkerResult(
                producer_id,
                tuple(TopicResult(name, tuple(errors.values())) for name, errors in topics.items()),
            )
            for producer_id, topics in producers.items()
        )
    )
