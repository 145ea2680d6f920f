"""The committed offsets of groups, and those that wait for the end of a transaction.

Changed by records only. An offset that was committed as part of a transaction counts when the transaction's marker is
there, and is forgotten when it was aborted; until then the partition is `is_unstable` for readers that ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from moldau.coordinator.group.records import NO_TIMESTAMP, OffsetCommitted, OffsetForgotten
from moldau.coordinator.shard import Producer


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID | None = None


Place = tuple[str, str, int]
"""Group, topic and partition."""
NO_OFFSETS: Mapping[str, Mapping[int, Committed]] = {}


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, Committed]]] = {}
        self._pending: dict[Place, dict[int, OffsetCommitted | None]] = {}
        """By producer id, in the order of the log; None where something later counts already."""
        self._unstable: dict[str, dict[Place, None]] = {}
        """The same places by group."""
        self._open: dict[int, dict[Place, None]] = {}
        """The same by producer id: where a transaction has offsets that wait for its end."""

    # Changes

    def commit(self, record: OffsetCommitted) -> None:
        pending = self._pending.get(record[:3], {})
        for producer_id in pending:
            pending[producer_id] = None
        self._put(record)

    def _put(self, record: OffsetCommitted) -> None:
        topics = self._groups.setdefault(record.group_id, {})
        topics.setdefault(record.topic, {})[record.partition] = Committed(*record[3:])

    def commit_in_transaction(self, record: OffsetCommitted, producer: Producer) -> None:
        place: Place = record[:3]
        pending = self._pending.setdefault(place, {})
        self._unstable.setdefault(record.group_id, {})[place] = None
        pending.pop(producer.producer_id, None)
        pending[producer.producer_id] = record
        self._open.setdefault(producer.producer_id, {})[place] = None

    def end_transaction(self, producer: Producer, *, is_commit: bool) -> list[OffsetCommitted]:
        """The offsets that count from now on.

        Of two commits the later in the log counts, whichever transaction ends last: compaction keeps no other.
        """
        counting = []
        own_id = producer.producer_id
        for place in self._open.pop(own_id, ()):
            pending = self._pending[place]
            record = pending[own_id]
            if is_commit and record is not None:
                if len(pending) > 1:
                    for earlier in takewhile(lambda one: one != own_id, pending):
                        pending[earlier] = None
                self._put(record)
                counting.append(record)
            del pending[own_id]
            if not pending:
                del self._pending[place]
                self._settle(place)
        return counting

    def _settle(self, place: Place) -> None:
        """No open transaction has an offset there any more."""
        unstable = self._unstable[place[0]]
        del unstable[place]
        if not unstable:
            del self._unstable[place[0]]

    def forget(self, record: OffsetForgotten) -> None:
        """What waits for the end of a transaction is forgotten as well."""
        topics = self._groups.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self._groups.pop(record.group_id, None)
        place: Place = record[:3]
        if place in self._pending:
            for producer_id in self._pending.pop(place):
                del self._open[producer_id][place]
            self._settle(place)

    # Looks

    def count_open(self, producer: Producer) -> int:
        """How many offsets wait for the end of a producer's transaction."""
        return len(self._open.get(producer.producer_id, ()))

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._groups.get(group_id, NO_OFFSETS).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """Topic -> partition -> offset."""
        return self._groups.get(group_id, NO_OFFSETS)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """A transaction that is still open has committed an offset there."""
        return (group_id, topic, partition) in self._pending

    def has_unstable(self, group_id: str) -> bool:
        return group_id in self._unstable

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a group has an offset, or an open transaction one for it."""
        has_committed = self.get(group_id, topic, partition) is not None
        return has_committed or self.is_unstable(group_id, topic, partition)

    def places_of_group(self, group_id: str) -> Iterator[Place]:
        """Where a group has an offset, or an open transaction one for it."""
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield group_id, topic, partition
        for place in self._unstable.get(group_id, ()):
            if self.get(*place) is None:
                yield place

    def count_of_topic(self, name: str) -> int:
        """How many offsets count in a topic, over all groups."""
        return sum(len(topics[name]) for topics in self._groups.values() if name in topics)

    def places_of_topic(self, name: str) -> list[Place]:
        """The same of all groups, in one topic."""
        counting = (
            (group_id, name, partition)
            for group_id, topics in self._groups.items()
            for partition in topics.get(name, ())
        )
        return list(dict.fromkeys([*counting, *(place for place in self._pending if place[1] == name)]))
