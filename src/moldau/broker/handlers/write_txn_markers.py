"""WriteTxnMarkers (27): end transactions in the partitions that this broker leads, at the word of a coordinator.

Also how a person ends a transaction that hangs: with coordinator epoch -1 (KIP-664). From version 2 on the request
says which transaction version a marker is of, and the marker's epoch is checked more strictly (KIP-1228).
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.ids import TopicPartition
from moldau.broker.interface import Request, RequestContext, TransactionBroker
from moldau.broker.markers import write_marker
from moldau.coordinator.shard import Producer
from moldau.log.transactions import Marker

API_KEY = 27
VERSIONS = (1, 2)


async def handle(broker: TransactionBroker, context: RequestContext, request: Request) -> object:
    producers: dict[int, dict[str, dict[int, object]]] = {}
    for wanted in request.markers:
        marker = Marker(wanted.transaction_result, wanted.coordinator_epoch)
        producer = Producer(wanted.producer_id, wanted.producer_epoch)
        version = getattr(wanted, "transaction_version", 0)
        for topic in wanted.topics:
            for index in topic.partition_indexes:
                topics = producers.setdefault(wanted.producer_id, {})
                place = TopicPartition(topic.name, index)
                error = await write_marker(broker, place, marker, producer, version)
                topics.setdefault(topic.name, {})[index] = SimpleNamespace(
                    partition_index=index, error_code=error
                )
    return SimpleNamespace(
        markers=tuple(
            SimpleNamespace(
                producer_id=producer_id,
                topics=tuple(
                    SimpleNamespace(name=name, partitions=tuple(partitions.values()))
                    for name, partitions in topics.items()
                ),
            )
            for producer_id, topics in producers.items()
        )
    )
