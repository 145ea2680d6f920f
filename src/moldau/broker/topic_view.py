"""A topic as clients are shown it, for Metadata and DescribeTopicPartitions alike."""

from __future__ import annotations

from collections.abc import Set

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.answers.metadata import PartitionShown, TopicShown
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import NO_LEADER, PartitionState


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# The codes of Kafka's AclOperation: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action,
# 10 describe configs, 11 alter configs, 12 idempotent write. Without an authorizer everyone may do everything.
TOPIC_OPERATIONS = bits(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS = bits(5, 7, 8, 9, 10, 11, 12)


def partition_view(
    image: ClusterImage, place: TopicPartition, state: PartitionState, offline: Set[TopicPartition]
) -> PartitionShown:
    """`offline` are the partitions whose disk has failed on this broker, of which the controller may not know yet."""
    brokers = image.brokers
    if place in offline and len(state.replicas) == 1:
        return _offline_view(place, state)
    is_led = state.leader in brokers
    return PartitionShown(
        ErrorCode.none if is_led else ErrorCode.leader_not_available,
        place.partition,
        state.leader if is_led else NO_LEADER,
        state.leader_epoch,
        state.replicas,
        state.isr,
        tuple([replica for replica in state.replicas if replica not in brokers or replica in state.offline]),
        state.elr,
        state.last_known_elr,
    )


def _offline_view(place: TopicPartition, state: PartitionState) -> PartitionShown:
    """As Kafka's KRaftMetadataCache shows it, but in the leader epoch of before: who leads has not changed here."""
    return PartitionShown(
        error_code=ErrorCode.leader_not_available,
        partition_index=place.partition,
        leader_id=NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=(),
        offline_replicas=state.replicas,
        eligible_leader_replicas=state.isr,
    )


def topic_view(topic: Topic, partitions: tuple[PartitionShown, ...], operations: int) -> TopicShown:
    return TopicShown(ErrorCode.none, topic.name, topic.topic_id, topic.is_internal, partitions, operations)
