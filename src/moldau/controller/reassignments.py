"""Decisions on moving partitions to other brokers, with Kafka's answers (KIP-455). Pure.

A reassignment adds replicas, waits until they are in sync, then takes the others away: the end is part of every change
of the in-sync set (`partition_change`). A second one takes the place of the first; cancelling goes back to where the
first began, also then, where Kafka's controller has forgotten some of it. (ReplicationControlManager,
PartitionReassignmentReplicas, PartitionReassignmentRevert.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Election, Target, is_reassigning
from moldau.controller.placement import check_manual_assignment
from moldau.controller.rules import Rules
from moldau.controller.slices import PARTITIONS_PER_SLICE, Slices
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import PartitionsChanged, PartitionState


class Reassignment(NamedTuple):
    """A partition and its new replicas; None cancels what is under way."""

    place: TopicPartition
    replicas: Sequence[int] | None


class Reassigned(NamedTuple):
    place: TopicPartition
    error: ErrorCode
    message: str | None = None


class Reassignments(NamedTuple):
    outcomes: list[Reassigned]
    records: list[PartitionsChanged]


class Ongoing(NamedTuple):
    """A reassignment under way, as ListPartitionReassignments shows it."""

    place: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def decide_reassignments(
    image: ClusterImage, rules: Rules, wanted: Sequence[Reassignment], *, may_change_factor: bool = True
) -> Slices[Reassignments]:
    changes = Changes(image, rules)
    outcomes = []
    for number, (place, replicas) in enumerate(wanted, 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        try:
            topic = _topic_of(image, place)
            if replicas is None:
                _cancel(changes, rules, topic, place)
            else:
                _reassign(image, changes, topic, place, replicas, may_change_factor)
            outcomes.append(Reassigned(place, ErrorCode.none))
        except KafkaError as error:
            outcomes.append(Reassigned(place, error.code, error.message))
    return Reassignments(outcomes, changes.records())


def _topic_of(image: ClusterImage, place: TopicPartition) -> Topic:
    topic = image.topics.get(place.topic)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {place.topic}.")
    if not 0 <= place.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"Unable to find partition {place.topic}:{place.partition}.",
        )
    return topic


def _reassign(
    image: ClusterImage,
    changes: Changes,
    topic: Topic,
    place: TopicPartition,
    wanted: Sequence[int],
    may_change_factor: bool,
) -> None:
    check_manual_assignment(image.registered, wanted)
    state = changes.state(topic, place.partition)
    if not may_change_factor:
        factor = len([replica for replica in state.replicas if replica not in state.removing])
        if factor != len(wanted):
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"The replication factor is changed from {factor} to {len(wanted)}",
            )
    original = _original(state)
    removing = tuple(sorted(set(state.replicas) - set(wanted)))
    replicas = (*wanted, *removing)
    adding = tuple(sorted(set(replicas) - set(original)))
    changes.change(
        topic,
        place.partition,
        Target(replicas=replicas, adding=adding, removing=removing),
        Election.ONLINE,
    )


def _original(state: PartitionState) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica not in state.adding)


def _cancel(changes: Changes, rules: Rules, topic: Topic, place: TopicPartition) -> None:
    state = changes.state(topic, place.partition)
    if not is_reassigning(state):
        raise KafkaError(ErrorCode.no_reassignment_in_progress)  # Kafka gives no text
    replicas = _original(state)
    isr = tuple(replica for replica in state.isr if replica not in state.adding)
    if not isr and state.isr:
        if rules.election(topic) is not Election.UNCLEAN:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {place.topic}:{place.partition} because it would "
                "require an unclean leader election.",
            )
        isr = replicas[:1]
    changes.change(topic, place.partition, Target(isr=isr, replicas=replicas, adding=(), removing=()))


def list_reassignments(
    image: ClusterImage, wanted: Mapping[str, Sequence[int]] | None = None
) -> list[Ongoing]:
    """Those under way: of the partitions that are named, or of all."""
    found = []
    for name in sorted(image.topics) if wanted is None else wanted:
        topic = image.topics.get(name)
        if topic is None:
            continue
        indexes = range(len(topic.partitions)) if wanted is None else wanted[name]
        for index in indexes:
            if 0 <= index < len(topic.partitions) and is_reassigning(state := topic.partitions[index]):
                place = TopicPartition(name, index)
                found.append(Ongoing(place, state.replicas, state.adding, state.removing))
    return found
