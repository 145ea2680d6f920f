"""Decisions on who leads partitions when someone asks: ElectLeaders, and the rebalance towards preferred leaders. Pure.

With Kafka's answers (ReplicationControlManager.electLeaders). The rebalance moves a broker's partitions back to it
when it leads too few of those that name it first; Kafka's older controllers have the same share of ten per cent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.controller import partition_change
from moldau.controller.changes import Changes
from moldau.controller.rules import Rules
from moldau.controller.slices import PARTITIONS_PER_SLICE, Slices
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import NO_LEADER, PartitionsChanged

ELECTIONS_PER_REBALANCE = 1_000
IMBALANCE_PERCENT_MAX = 10


class Election(IntEnum):
    """Which leader is wanted, with its number in requests: the first replica, or any at all where there is none."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    place: TopicPartition
    error: ErrorCode
    message: str | None = None


class Elections(NamedTuple):
    outcomes: list[Elected]
    records: list[PartitionsChanged]


NOT_NEEDED = KafkaError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
NOT_AVAILABLE = {
    Election.PREFERRED: KafkaError(
        ErrorCode.preferred_leader_not_available, "The preferred leader was not available."
    ),
    Election.UNCLEAN: KafkaError(
        ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."
    ),
}
_KINDS = {
    Election.PREFERRED: partition_change.Election.PREFERRED,
    Election.UNCLEAN: partition_change.Election.UNCLEAN,
}


def decide_elections(
    image: ClusterImage, rules: Rules, election: Election, places: Sequence[TopicPartition] | None
) -> Slices[Elections]:
    """For the partitions that are named, or for all: then those that need no election are left out."""
    changes = Changes(image, rules)
    outcomes = []
    for number, place in enumerate(_all(image) if places is None else places, 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        error = _elect(image, changes, election, place)
        if error is None:
            outcomes.append(Elected(place, ErrorCode.none))
        elif places is not None or error is not NOT_NEEDED:
            outcomes.append(Elected(place, error.code, error.message))
    return Elections(outcomes, changes.records())


def _all(image: ClusterImage) -> Iterable[TopicPartition]:
    for name, topic in sorted(image.topics.items()):
        for index in range(len(topic.partitions)):
            yield TopicPartition(name, index)


def _elect(
    image: ClusterImage, changes: Changes, election: Election, place: TopicPartition
) -> KafkaError | None:
    topic = image.topics.get(place.topic)
    if topic is None:
        return KafkaError(ErrorCode.unknown_topic_or_partition, f"No such topic as {place.topic}")
    if not 0 <= place.partition < len(topic.partitions):
        return KafkaError(ErrorCode.unknown_topic_or_partition, f"No such partition as {place}")
    state = changes.state(topic, place.partition)
    is_preferred = state.leader == state.replicas[0]
    if is_preferred if election is Election.PREFERRED else state.leader != NO_LEADER:
        return NOT_NEEDED
    if changes.change(topic, place.partition, election=_KINDS[election]) is None:
        return NOT_AVAILABLE[election]
    return None


def decide_rebalance(
    image: ClusterImage, rules: Rules, percent_max: int = IMBALANCE_PERCENT_MAX
) -> Slices[list[PartitionsChanged]]:
    """Back to their preferred leaders: the partitions of brokers that lead too few of their own."""
    owned: dict[int, int] = {}
    away: dict[int, list[TopicPartition]] = {}
    for number, place in enumerate(_all(image), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        state = image.topics[place.topic].partitions[place.partition]
        preferred = state.replicas[0]
        owned[preferred] = owned.get(preferred, 0) + 1
        if state.leader != preferred:
            away.setdefault(preferred, []).append(place)
    changes = Changes(image, rules)
    count = 0
    for preferred, places in sorted(away.items()):
        if len(places) * 100 <= percent_max * owned[preferred]:
            continue
        for name, index in places:
            topic = image.topics[name]
            if count < ELECTIONS_PER_REBALANCE and preferred in topic.partitions[index].isr:
                count += (
                    changes.change(topic, index, election=partition_change.Election.PREFERRED) is not None
                )
    return changes.records()
