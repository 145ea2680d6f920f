"""The committed offsets of groups, and those that wait for the end of a transaction.

Changed by records only. An offset that was committed as part of a transaction counts when the transaction's marker is
there, and is forgotten when it was aborted; until then the partition is `is_unstable` for readers that ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


Place = tuple[str, int]
NO_OFFSETS: Mapping[str, Mapping[int, Committed]] = {}


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, Committed]]] = {}
        self._open: dict[int, list[OffsetCommitted]] = {}  # by producer id, in the order of the log
        self._unstable: dict[tuple[str, str, int], set[int]] = {}

    # Changes

    def commit(self, record: OffsetCommitted) -> None:
        topics = self._groups.setdefault(record.group_id, {})
        topics.setdefault(record.topic, {})[record.partition] = Committed(*record[3:])

    def commit_in_transaction(self, record: OffsetCommitted, producer: Producer) -> None:
        self._open.setdefault(producer.producer_id, []).append(record)
        self._unstable.setdefault(record[:3], set()).add(producer.producer_id)

    def end_transaction(self, producer: Producer, *, is_commit: bool) -> list[OffsetCommitted]:
        """The offsets that count from now on."""
        records = self._open.pop(producer.producer_id, [])
        for record in records:
            producers = self._unstable.get(record[:3])
            if producers is not None:
                producers.discard(producer.producer_id)
                if not producers:
                    del self._unstable[record[:3]]
            if is_commit:
                self.commit(record)
        return records if is_commit else []

    def forget(self, record: OffsetForgotten) -> None:
        topics = self._groups.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self._groups.pop(record.group_id, None)

    # Looks

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._groups.get(group_id, NO_OFFSETS).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """Topic -> partition -> offset."""
        return self._groups.get(group_id, NO_OFFSETS)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """A transaction that is still open has committed an offset there."""
        return (group_id, topic, partition) in self._unstable

    def has_unstable(self, group_id: str) -> bool:
        return any(key[0] == group_id for key in self._unstable)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """The groups and partitions that have an offset in a topic."""
        for group_id, topics in self._groups.items():
            for partition in topics.get(topic, ()):
                yield group_id, partition
