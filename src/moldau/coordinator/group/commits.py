"""Decisions on committed offsets: committing, fetching, deleting them, and letting them go when they are old.

Whoever may commit is the group's to say. An offset is kept while its group reads the topic, and for
`offsets.retention.minutes` after that: after the last commit where the group has no members of its own, after the
group lost its last member where it had some. Where nothing is left of a group without members, it goes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.classic import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.messages import Commit, Fetched, PartitionWanted
from moldau.coordinator.group.offsets import Committed, Offsets
from moldau.coordinator.group.records import NO_TIMESTAMP, OffsetCommitted, OffsetForgotten
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.java import java_length

Group = ClassicGroup | ConsumerGroup
"""Whatever has members and offsets."""


class Commits:
    """Over the offsets of one shard."""

    def __init__(self, settings: GroupSettings, offsets: Offsets) -> None:
        self._settings = settings
        self._offsets = offsets

    def decide(self, commit: Commit, wall_ms: int) -> tuple[list[OffsetCommitted], list[ErrorCode]]:
        """The records, and an outcome for each offset; its group has allowed the commit."""
        expire_ms = NO_TIMESTAMP if commit.retention_ms < 0 else wall_ms + commit.retention_ms
        records, errors = [], []
        for wanted in commit.offsets:
            if java_length(wanted.metadata) > self._settings.offset_metadata_max:
                errors.append(ErrorCode.offset_metadata_too_large)
                continue
            errors.append(ErrorCode.none)
            records.append(
                OffsetCommitted(
                    commit.group_id,
                    wanted.topic,
                    wanted.partition,
                    wanted.offset,
                    wanted.leader_epoch,
                    wanted.metadata,
                    wall_ms,
                    expire_ms,
                    wanted.topic_id,
                )
            )
        return records, errors

    def fetch(
        self, group_id: str, wanted: Iterable[PartitionWanted], *, require_stable: bool
    ) -> list[Fetched]:
        """-1 where nothing was committed, which is no error; nor is a group that was never heard of."""
        return [self._fetch(group_id, one, require_stable) for one in wanted]

    def fetch_all(self, group_id: str, *, require_stable: bool) -> list[Fetched]:
        places = (
            PartitionWanted(topic, partition)
            for topic, partitions in self._offsets.of_group(group_id).items()
            for partition in partitions
        )
        return self.fetch(group_id, places, require_stable=require_stable)

    def _fetch(self, group_id: str, wanted: PartitionWanted, require_stable: bool) -> Fetched:
        topic, partition, topic_id = wanted
        if require_stable and self._offsets.is_unstable(group_id, topic, partition):
            return Fetched(topic, partition, error=ErrorCode.unstable_offset_commit)
        committed = self._offsets.get(group_id, topic, partition)
        if committed is None or _is_of_another_topic(committed, topic_id):
            return Fetched(topic, partition)
        return Fetched(topic, partition, committed.offset, committed.leader_epoch, committed.metadata)

    def delete(
        self, group: Group, wanted: Sequence[tuple[str, int]]
    ) -> tuple[list[OffsetForgotten], list[ErrorCode]]:
        """Offsets of topics that the group still reads stay."""
        records, errors = [], []
        subscribed: dict[str, bool] = {}
        for topic, partition in wanted:
            if topic not in subscribed:
                subscribed[topic] = group.is_subscribed_to(topic)
            if subscribed[topic]:
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if self._offsets.has(group.group_id, topic, partition):
                records.append(OffsetForgotten(group.group_id, topic, partition))
        return records, errors

    def of_topics(self, topics: Iterable[str]) -> list[OffsetForgotten]:
        """Topics were deleted: their offsets mean nothing any more."""
        return [OffsetForgotten(*place) for topic in topics for place in self._offsets.places_of_topic(topic)]

    def some_of(self, group_id: str, count: int) -> list[OffsetForgotten]:
        """Offsets of a group that goes: so many, or all that are left."""
        places = islice(self._offsets.places_of_group(group_id), count)
        return [OffsetForgotten(*place) for place in places]

    def expired(self, group: Group, wall_ms: int) -> Iterator[OffsetForgotten]:
        """The offsets of a group that nobody has needed for the time that they are kept."""
        for topic, partitions in self._offsets.of_group(group.group_id).items():
            if group.is_subscribed_to(topic) and not group.is_empty:
                continue
            for partition, committed in partitions.items():
                if self._is_expired(group, committed, wall_ms) and not self._offsets.is_unstable(
                    group.group_id, topic, partition
                ):
                    yield OffsetForgotten(group.group_id, topic, partition)

    def _is_expired(self, group: Group, committed: Committed, wall_ms: int) -> bool:
        since_ms = group.kept_since_ms(committed)
        if since_ms is None:
            return False
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return wall_ms >= committed.expire_timestamp_ms
        return wall_ms - since_ms >= self._settings.offsets_retention_ms


def _is_of_another_topic(committed: Committed, topic_id: UUID | None) -> bool:
    """A topic of the same name that was deleted since."""
    return None not in (committed.topic_id, topic_id) and committed.topic_id != topic_id
