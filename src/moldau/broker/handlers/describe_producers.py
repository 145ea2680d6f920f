"""DescribeProducers (61): the producers that a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.controller.names import invalid_topic_name

API_KEY = 61
VERSIONS = (0, 0)

NOT_HOSTED = "This server does not host this topic-partition."


def handle(broker: DataBroker, context: RequestContext, request: Request) -> object:
    return SimpleNamespace(
        throttle_time=0,
        topics=tuple(
            SimpleNamespace(
                name=topic.name,
                partitions=tuple(_describe(broker, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def _describe(broker: DataBroker, topic: str, index: int) -> object:
    invalid = invalid_topic_name(topic)
    if invalid is not None:
        return _refused(index, ErrorCode.invalid_topic_exception, invalid)
    if topic not in broker.image.topics:
        return _refused(index, ErrorCode.unknown_topic_or_partition, NOT_HOSTED)
    try:
        partition = broker.partition(topic, index)
        error = partition.check_readable()
    except KafkaError as reason:
        error = reason.code
    if error:
        return _refused(index, error, None)
    return SimpleNamespace(
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        active_producers=tuple(
            SimpleNamespace(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_first_offset,
            )
            for producer in partition.log.producers()
        ),
    )


def _refused(index: int, error: ErrorCode, message: str | None) -> object:
    return SimpleNamespace(
        partition_index=index, error_code=error, error_message=message, active_producers=()
    )
