"""Writing the markers that end transactions, to the partitions that this broker leads.

A marker in `__consumer_offsets` also tells the group coordinator of the partition that offsets count from now on, or
never will. The outcome is known when the marker is committed, as with acks=all.
"""

from __future__ import annotations

import logging
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.coordinator.shard import Producer
from moldau.log.transactions import Marker
from moldau.replication.partition import Partition

log = logging.getLogger(__name__)


async def write_marker(
    broker: Any, place: TopicPartition, marker: Marker, producer: Producer, version: int
) -> ErrorCode:
    """Append a marker and wait until it is committed; `version` is the producer's transaction version."""
    try:
        partition: Partition = broker.partition(*place)
    except KafkaError as error:
        return error.code
    if partition.refusal:
        return partition.refusal
    if producer.producer_id < 0 or producer.epoch < 0:
        return ErrorCode.unknown_server_error  # Kafka cannot even build such a marker
    if not partition.has_enough_in_sync():
        return ErrorCode.not_enough_replicas
    try:
        appended = partition.append_marker(
            marker, producer.producer_id, producer.epoch, broker.clock.wall_ms(), version
        )
    except OSError as error:
        log.error("cannot write a marker to %s: %s", place, error)
        return ErrorCode.kafka_storage_error
    if appended.error:
        return appended.error
    if place.topic == CONSUMER_OFFSETS:
        broker.coordinators.groups.on_marker(place.partition, producer, is_commit=marker.is_commit)
    deadline_s = broker.clock.monotonic() + broker.config["request.timeout.ms"] / 1000
    return await partition.committed(appended.last_offset + 1, deadline_s)
