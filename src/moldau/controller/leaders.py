"""Decisions on who leads partitions, and in which epoch. Pure.

A leader epoch stands for one leader's uninterrupted writing (KIP-101). A broker that comes back from a crash may
have lost records that someone has read, and will give their offsets to others: were the epoch the same, a reader
could not tell (KIP-320) and would miss some. So the leader begins a new one, as Kafka's does after every restart;
after a clean stop nothing was lost, and the epoch goes on.

A partition of a broker that is alone has one replica: an election has nobody else to choose, and is not needed or not
possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import IntEnum

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionsChanged, PartitionState


class Election(IntEnum):
    """Which leader is wanted, with its number in requests: the first replica, or any at all where there is none."""

    PREFERRED = 0
    UNCLEAN = 1


def decide_new_epochs(image: ClusterImage, places: Iterable[TopicPartition]) -> list[PartitionsChanged]:
    """The same leaders in new epochs, for the partitions that are named."""
    changed: dict[str, dict[int, PartitionState]] = {}
    for name, index in places:
        state = image.topics[name].partitions[index]
        changed.setdefault(name, {})[index] = state._replace(
            leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )
    return [PartitionsChanged(name, image.topics[name].topic_id, states) for name, states in changed.items()]


def why_not_elected(
    image: ClusterImage, place: TopicPartition, election: Election, offline: Set[TopicPartition]
) -> KafkaError:
    """What Kafka tells a client that asks for an election which changes nothing; `offline` have lost their disk."""
    topic = image.topics.get(place.topic)
    if topic is None:
        return KafkaError(ErrorCode.unknown_topic_or_partition, f"No such topic as {place.topic}")
    if not 0 <= place.partition < len(topic.partitions):
        return KafkaError(ErrorCode.unknown_topic_or_partition, f"No such partition as {place}")
    if place not in offline:
        return KafkaError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
    if election is Election.PREFERRED:
        return KafkaError(ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")
    return KafkaError(
        ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."
    )
