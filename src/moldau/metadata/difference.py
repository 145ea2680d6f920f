"""What a change of the cluster means for one broker: logs to open and close, partitions to lead and to follow. Pure.

It compares topics before and after, so it serves two whole images (a snapshot was taken over) as well as the topics
that some records touch (`touched`): topics are immutable values, so the ones of before are kept by holding them. A
topic that was deleted and made anew is another topic, told by its id: its partitions close, and open again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.metadata.image import Topic
from moldau.metadata.records import (
    ConfigChanged,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)


class Replica(NamedTuple):
    """A partition that the broker holds, as it is now."""

    place: TopicPartition
    topic_id: UUID
    state: PartitionState


class Closed(NamedTuple):
    """A partition that the broker holds no longer: its topic is gone, or it lives elsewhere now."""

    place: TopicPartition
    topic_id: UUID
    is_deleted: bool


class Difference(NamedTuple):
    """What one broker has to do, in this order. What it opens is also among what it leads or follows."""

    close: tuple[Closed, ...] = ()
    open: tuple[Replica, ...] = ()
    lead: tuple[Replica, ...] = ()
    """In a leader epoch that it has not led in yet."""
    follow: tuple[Replica, ...] = ()
    """Another leader, or the same in another epoch, or none: then the state's leader is NO_LEADER."""
    update: tuple[Replica, ...] = ()
    """The same leader in the same epoch; the in-sync set, the replicas or the partition epoch are others."""
    configure: tuple[str, ...] = ()
    """Topics that it holds partitions of, with other settings."""
    created: tuple[str, ...] = ()
    """Topics of the cluster that are new or have more partitions, whoever holds them."""
    deleted: tuple[tuple[str, UUID], ...] = ()


def touched(records: Iterable[Record]) -> list[str]:
    """The names of the topics that records are about, in order."""
    names: dict[str, None] = {}
    for record in records:
        match record:
            case TopicCreated() | TopicDeleted() | PartitionsAdded() | PartitionsChanged():
                names[record.name] = None
            case ConfigChanged() if record.resource.type is ResourceType.TOPIC:
                names[record.resource.name] = None
    return list(names)


def difference(broker_id: int, before: Mapping[str, Topic], after: Mapping[str, Topic]) -> Difference:
    """What the broker has to do so that `after` holds where `before` held; topics by name, those that may differ."""
    work = _Work(broker_id)
    for name, topic in before.items():
        now = after.get(name)
        if now is None or now.topic_id != topic.topic_id:
            work.delete(topic)
    for name, topic in after.items():
        was = before.get(name)
        if was is not topic:
            work.compare(was if was is not None and was.topic_id == topic.topic_id else None, topic)
    return work.done()


class _Work:
    def __init__(self, broker_id: int) -> None:
        self._id = broker_id
        self._close: list[Closed] = []
        self._open: list[Replica] = []
        self._lead: list[Replica] = []
        self._follow: list[Replica] = []
        self._update: list[Replica] = []
        self._configure: list[str] = []
        self._created: list[str] = []
        self._deleted: list[tuple[str, UUID]] = []

    def delete(self, topic: Topic) -> None:
        self._deleted.append((topic.name, topic.topic_id))
        for index, state in enumerate(topic.partitions):
            if self._id in state.replicas:
                place = TopicPartition(topic.name, index)
                self._close.append(Closed(place, topic.topic_id, is_deleted=True))

    def compare(self, was: Topic | None, now: Topic) -> None:
        old = () if was is None else was.partitions
        if len(now.partitions) > len(old):
            self._created.append(now.name)
        holds = False
        for index, state in enumerate(now.partitions):
            before = old[index] if index < len(old) else None
            holds = holds or self._id in state.replicas
            if before is not state:
                self._partition(TopicPartition(now.name, index), now.topic_id, before, state)
        if holds and was is not None and was.configs != now.configs:
            self._configure.append(now.name)

    def _partition(
        self, place: TopicPartition, topic_id: UUID, before: PartitionState | None, state: PartitionState
    ) -> None:
        held = before is not None and self._id in before.replicas
        if self._id not in state.replicas:
            if held:
                self._close.append(Closed(place, topic_id, is_deleted=False))
            return
        replica = Replica(place, topic_id, state)
        if not held:
            self._open.append(replica)
        elif before is not None and before[:2] == state[:2]:  # leader and leader epoch
            if before != state:
                self._update.append(replica)
            return
        (self._lead if state.leader == self._id else self._follow).append(replica)

    def done(self) -> Difference:
        return Difference(
            tuple(self._close),
            tuple(self._open),
            tuple(self._lead),
            tuple(self._follow),
            tuple(self._update),
            tuple(self._configure),
            tuple(self._created),
            tuple(self._deleted),
        )
