"""The coordinators of a broker: which of them it is, where their topics come from, and what they hear of the cluster.

The broker coordinates what it leads: it takes up a partition of an internal topic when it comes to lead it, and gives
it up when it does not any more. An internal topic is made when a client first asks for its coordinator.
"""

from __future__ import annotations

import logging
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.controller.topics import NewTopic
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.journal import PartitionJournal
from moldau.coordinator.runtime import CoordinatorRuntime, partition_for
from moldau.coordinator.shard import Shard
from moldau.metadata.records import NO_LEADER
from moldau.records.compression import Codec
from moldau.replication.partition import Partition

log = logging.getLogger(__name__)

CONSUMER_OFFSETS = "__consumer_offsets"


class Coordinators:
    """`broker` is the node: its image, its controller, its partitions' readers."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.groups = self._group_coordinator()
        self._by_topic: dict[str, CoordinatorRuntime[Any]] = {CONSUMER_OFFSETS: self.groups}
        self._epochs: dict[tuple[str, int], int] = {}

    def _group_coordinator(self) -> CoordinatorRuntime[GroupShard]:
        broker = self._broker
        settings = GroupSettings.of(broker.config)
        random = broker.runtime.random.fork("group members")
        return self._runtime(
            CONSUMER_OFFSETS,
            lambda _index: GroupShard(settings, lambda: str(random.uuid())),
            broker.config["offsets.commit.timeout.ms"],
        )

    def _runtime(self, topic: str, make_shard: Any, write_timeout_ms: int) -> CoordinatorRuntime[Any]:
        return CoordinatorRuntime[Shard](
            topic,
            make_shard,
            self._broker.runtime.tasks,
            self._broker.runtime.clock,
            partition_count=lambda: self._partition_count(topic),
            write_timeout_ms=write_timeout_ms,
        )

    # ---- what the cluster tells -----------------------------------------------------------------------------

    def on_partition(self, partition: Partition) -> None:
        """A partition was opened, or changed: lead it, go on to lead it, or give it up."""
        place = partition.topic_partition
        runtime = self._by_topic.get(place.topic)
        if runtime is None:
            return
        if partition.refusal:
            self._epochs.pop(place, None)
            runtime.resign(place.partition)
        elif self._epochs.get(place) != partition.leader_epoch:
            self._epochs[place] = partition.leader_epoch
            codec = Codec(self._broker.config["offsets.topic.compression.codec"])
            on_growth = self._broker.long_polls.on_growth
            runtime.lead(place.partition, PartitionJournal(partition, codec=codec, on_growth=on_growth))

    def on_topic_deleted(self, name: str) -> None:
        runtime = self._by_topic.get(name)
        if runtime is None:
            self.groups.note_all(lambda shard, _moment: shard.on_topics_deleted([name]))
            return
        self._epochs = {place: epoch for place, epoch in self._epochs.items() if place[0] != name}
        runtime.close()

    def close(self) -> None:
        for runtime in self._by_topic.values():
            runtime.close()

    # ---- who coordinates ------------------------------------------------------------------------------------

    async def find(self, topic: str, key: str) -> tuple[ErrorCode, int]:
        """The id of the broker that coordinates a key; its topic is made where it is not there yet."""
        if self._partition_count(topic) == 0:
            await self._create(topic)
        found = self._broker.image.topics.get(topic)
        if found is None:
            return ErrorCode.coordinator_not_available, NO_LEADER
        leader = found.partitions[partition_for(key, len(found.partitions))].leader
        if leader not in self._broker.image.brokers:
            return ErrorCode.coordinator_not_available, NO_LEADER
        return ErrorCode.none, leader

    def _partition_count(self, topic: str) -> int:
        found = self._broker.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    async def _create(self, name: str) -> None:
        config = self._broker.config
        topic = NewTopic(
            name,
            config["offsets.topic.num.partitions"],
            config["offsets.topic.replication.factor"],
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config["offsets.topic.segment.bytes"])),
            ),
        )
        (outcome,) = await self._broker.controller.create_topics([topic])
        if outcome.error not in (ErrorCode.none, ErrorCode.topic_already_exists):
            log.error("cannot create %s: %s", name, outcome.message or outcome.error.name)
