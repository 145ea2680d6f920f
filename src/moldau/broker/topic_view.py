"""A topic as clients are shown it, for Metadata and DescribeTopicPartitions alike."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.metadata import PartitionShown, TopicShown
from moldau.broker.interface import ClusterView
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import NO_LEADER, PartitionState
from moldau.runtime.line import Slices

PARTITIONS_PER_PAUSE = 64


class Viewer:
    """Who looks: a client that came in by a listener, and reaches the brokers that have it.

    A leader that it cannot reach is none for it, and such a replica is offline (Kafka's `KRaftMetadataCache`). What an
    election has not caught up with is not guessed at: the image says who leads, also where a disk has just failed.
    """

    __slots__ = ("_alive", "_elsewhere", "_reachable", "_unled")

    def __init__(
        self,
        image: ClusterImage,
        listener: str,
        *,
        unled: ErrorCode = ErrorCode.none,
        elsewhere: ErrorCode = ErrorCode.none,
    ) -> None:
        """`unled`: what is said of a partition without a leader; `elsewhere`: of one whose leader is alive, but lacks
        the listener."""
        self._alive = image.brokers
        self._reachable = frozenset(
            [broker.id for broker in image.brokers.values() if listener in broker.listeners]
        )
        self._unled, self._elsewhere = unled, elsewhere

    def partition(self, index: int, state: PartitionState) -> PartitionShown:
        reachable, replicas = self._reachable, state.replicas
        leader, error = state.leader, ErrorCode.none
        if leader not in reachable:
            error = self._elsewhere if leader in self._alive else self._unled
            leader = NO_LEADER
        offline: tuple[int, ...] = ()
        if state.offline or not reachable.issuperset(replicas):
            offline = tuple(
                [replica for replica in replicas if replica not in reachable or replica in state.offline]
            )
        return PartitionShown(
            error,
            index,
            leader,
            state.leader_epoch,
            replicas,
            state.isr,
            offline,
            state.elr,
            state.last_known_elr,
        )

    def showing(
        self, topic: Topic, operations: int, first: int = 0, stop: int | None = None
    ) -> Slices[TopicShown]:
        """A topic, with pauses between its partitions."""
        partitions = []
        for index, state in enumerate(topic.partitions[first:stop], first):
            partitions.append(self.partition(index, state))
            if index % PARTITIONS_PER_PAUSE == 0:
                yield
        return TopicShown(
            ErrorCode.none, topic.name, topic.topic_id, topic.is_internal, tuple(partitions), operations
        )


def controller_shown(broker: ClusterView) -> int:
    """The controller; while clients cannot find it, this broker, which forwards what is for the controller."""
    image = broker.image
    return image.controller_id if image.controller_id in image.brokers else broker.node_id
