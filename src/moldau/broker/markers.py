"""Writing the markers that end transactions: to the partitions that this broker leads, and to those led elsewhere.

A marker in `__consumer_offsets` also tells the group coordinator of the partition that offsets count from now on, or
never will. The outcome is known when the marker is committed, as with acks=all: all are appended, then waited for.

To other brokers go WriteTxnMarkers requests, each with the ends of as many transactions as wait for that broker
(`outbox`). Who leads is looked up with each attempt; what to do about an outcome is `transaction.ending`'s to decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.interface import MarkerBroker
from moldau.broker.outbox import Load, Outbox
from moldau.coordinator.shard import Producer
from moldau.coordinator.transaction.messages import Markers
from moldau.log.transactions import Marker
from moldau.metadata.records import NO_LEADER
from moldau.peers.peer import Peer
from moldau.replication.partition import Partition
from moldau.runtime.line import Breathing, Pace

log = logging.getLogger(__name__)

WRITE_TXN_MARKERS = 27
LANE = "markers"
REQUEST_TIMEOUT_S = 40.0
"""Longer than the broker itself waits for its followers: a marker must not come late, when the next transaction of its
producer has begun. A broker that is fenced meanwhile is not waited for; what it still writes is never committed."""

Outcomes = dict[TopicPartition, ErrorCode]


class Wanted(NamedTuple):
    """A marker for one partition; `version` is the producer's transaction version."""

    place: TopicPartition
    marker: Marker
    producer: Producer
    version: int


async def write_markers(broker: MarkerBroker, wanted: Sequence[Wanted], pace: Breathing) -> list[ErrorCode]:
    """Append markers to partitions that this broker leads, and wait until all are committed: an error for each.

    Others run between, where there are many.
    """
    deadline_s = broker.clock.monotonic() + broker.config["request.timeout.ms"] / 1000
    outcomes = []
    for one in wanted:
        outcomes.append(_write(broker, one, deadline_s))
        await pace.breathe()
    return [await outcome for outcome in outcomes]


def _write(broker: MarkerBroker, wanted: Wanted, deadline_s: float) -> asyncio.Future[ErrorCode]:
    """Append one marker; its outcome, once it is known."""
    outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def know(error: ErrorCode) -> None:
        if not outcome.done():  # who waited may have been cancelled
            outcome.set_result(error)

    try:
        partition: Partition = broker.partition(*wanted.place)
        next_offset = _append(broker, partition, wanted)
    except KafkaError as refusal:
        know(refusal.code)
        return outcome
    if wanted.place.topic == CONSUMER_OFFSETS:
        _tell_group_coordinator(broker, wanted)
    partition.when_committed(next_offset, deadline_s, know)
    return outcome


def _append(broker: MarkerBroker, partition: Partition, wanted: Wanted) -> int:
    """The offset behind the marker; KafkaError where it is refused."""
    producer_id, epoch = wanted.producer
    if partition.refusal:
        raise KafkaError(partition.refusal)
    if producer_id < 0 or epoch < 0:
        raise KafkaError(ErrorCode.unknown_server_error)  # Kafka cannot even build such a marker
    if not partition.has_enough_in_sync():
        raise KafkaError(ErrorCode.not_enough_replicas)
    try:
        now_ms = broker.clock.wall_ms()
        appended = partition.append_marker(wanted.marker, producer_id, epoch, now_ms, wanted.version)
    except OSError as error:
        log.error("cannot write a marker to %s: %s", wanted.place, error)
        raise KafkaError(ErrorCode.kafka_storage_error) from error
    if appended.error:
        raise KafkaError(appended.error)
    return appended.last_offset + 1


def _tell_group_coordinator(broker: MarkerBroker, wanted: Wanted) -> None:
    broker.coordinators.groups.on_marker(
        wanted.place.partition,
        wanted.producer,
        is_commit=wanted.marker.is_commit,
        takes_long=lambda shard: shard.marker_takes_long(wanted.producer),
    )


class MarkerWriter:
    """Writes the markers of whole transactions, wherever their partitions are led."""

    def __init__(self, broker: MarkerBroker) -> None:
        self._broker = broker
        self.outbox = Outbox[Markers, Outcomes](
            broker.tasks, broker.peers, LANE, _send, _load, lambda markers: _all(markers, LOST)
        )

    async def write(self, markers: Markers) -> Outcomes:
        """An outcome for each partition, none for one that is gone."""
        outcomes: Outcomes = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in markers.partitions:
            topic = self._broker.image.topics.get(place.topic)
            if topic is not None and place.partition < len(topic.partitions):
                leader = topic.partitions[place.partition].leader
                by_leader.setdefault(leader, []).append(place)
        for place in by_leader.pop(NO_LEADER, ()):
            outcomes[place] = ErrorCode.leader_not_available
        own = by_leader.pop(self._broker.node_id, None)
        asked = [
            self._broker.tasks.spawn(
                self.outbox.ask(leader, markers._replace(partitions=tuple(places))),
                name=f"markers of {markers.transactional_id}",
            )
            for leader, places in by_leader.items()
        ]
        if own is not None:
            outcomes |= await self._write_here(markers._replace(partitions=tuple(own)))
        for one in asked:
            outcomes |= await one
        return outcomes

    async def _write_here(self, markers: Markers) -> Outcomes:
        marker = Marker(markers.is_commit, markers.coordinator_epoch)
        producer = Producer(markers.producer_id, markers.producer_epoch)
        wanted = [Wanted(place, marker, producer, markers.version) for place in markers.partitions]
        pace = Pace(self._broker.clock, self._broker.line)
        errors = await write_markers(self._broker, wanted, pace)
        return dict(zip(markers.partitions, errors, strict=True))


LOST = ErrorCode.network_exception


def _load(markers: Markers) -> Load:
    return Load(markers.producer_id, len(markers.partitions))


def _all(markers: Markers, error: ErrorCode) -> Outcomes:
    return dict.fromkeys(markers.partitions, error)


async def _send(peer: Peer, ends: Sequence[Markers]) -> list[Outcomes]:
    request = SimpleNamespace(markers=tuple(_request(markers) for markers in ends))
    answer = await peer.ask(WRITE_TXN_MARKERS, request, REQUEST_TIMEOUT_S)
    found = {
        (producer.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for producer in answer.markers
        for topic in producer.topics
        for partition in topic.partitions
    }
    return [
        {place: found.get((markers.producer_id, *place), LOST) for place in markers.partitions}
        for markers in ends
    ]


def _request(markers: Markers) -> SimpleNamespace:
    topics: dict[str, list[int]] = {}
    for place in markers.partitions:
        topics.setdefault(place.topic, []).append(place.partition)
    return SimpleNamespace(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.is_commit,
        topics=tuple(
            SimpleNamespace(name=name, partition_indexes=tuple(indexes)) for name, indexes in topics.items()
        ),
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.version,
    )
