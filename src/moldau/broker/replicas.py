"""The partitions that this broker holds: opened, led, followed and closed as the cluster image says.

It acts on differences of the image (`metadata.difference`), one after the other. Before the broker is registered in
this life it opens logs but neither leads nor follows: what the image says of its leaders may be from before its death
(`begin_serving`). A log that is being cut off is led only when that is done.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.metadata.difference import Closed, Difference, Replica
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import NO_LEADER, PartitionState
from moldau.replication.fetch_session import TopicRef
from moldau.replication.partition import Partition
from moldau.replication.quota import throttled_partitions
from moldau.replication.replication import Replication
from moldau.replication.traffic import TopicTraffic
from moldau.runtime.ports import Tasks

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 16
"""Logs made or deleted, so that a topic with thousands of partitions holds nobody up."""
CHANGES_PER_TURN = 128


class Following(Protocol):
    """`replication.fetchers`, as far as it is used here."""

    async def follow(self, partition: Partition) -> None: ...
    async def forget(self, partition: Partition) -> None: ...


class Replicas:
    def __init__(
        self,
        node_id: int,
        tasks: Tasks,
        image: ClusterImage,
        replication: Replication,
        config_of: Callable[[Topic], TopicConfig],
        on_role: Callable[[Partition], object],
    ) -> None:
        """`on_role`: a partition is led or followed, in a new epoch, or is gone: coordinators want to know."""
        self._node_id = node_id
        self._tasks = tasks
        self._image = image
        self._replication = replication
        self._config_of = config_of
        self._on_role = on_role
        self.log_manager: LogManager
        self.fetchers: Following
        self.partitions: dict[TopicPartition, Partition] = {}
        self.partitions_of: dict[TopicRef, dict[int, Partition]] = {}
        """By the topic's name, and by the bytes of its id."""
        self.traffic = TopicTraffic()
        self.offline: set[TopicPartition] = set()
        """Those whose disk has failed."""
        self.on_disk: Callable[[Partition], object] = lambda _partition: None
        """A partition's disk has failed, or there is a log for it after all."""
        self._throttled: tuple[TopicConfig | None, Container[int], Container[int]] = None, (), ()
        """Settings of a topic, and which partitions they throttle here: those that were looked at last."""
        self._is_serving = False
        self._leading_later: dict[Partition, PartitionState] = {}

    # Looking up

    def partition(self, topic: TopicRef, index: int) -> Partition:
        """By the topic's name or the bytes of its id; KafkaError where this broker does not hold it."""
        partitions = self.partitions_of.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise KafkaError(self._why_not_held(topic, index))
        return partition

    def _why_not_held(self, topic: TopicRef, index: int) -> ErrorCode:
        if isinstance(topic, bytes):
            found = self._image.topic_by_id.get(uuid.UUID(bytes=topic))
            unknown = ErrorCode.unknown_topic_id
        else:
            found = self._image.topics.get(topic)
            unknown = ErrorCode.unknown_topic_or_partition
        if found is None:
            return unknown
        if not 0 <= index < len(found.partitions):
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.not_leader_or_follower

    # Starting

    async def open_all(self) -> list[TopicPartition]:
        """Open the partitions that the image gives a replica here; those whose log was not there."""
        lost = []
        opened = 0
        for topic in list(self._image.topics.values()):
            for index, state in enumerate(topic.partitions):
                if self._node_id in state.replicas:
                    place = TopicPartition(topic.name, index)
                    if place not in self.log_manager.logs:
                        lost.append(place)
                    await self._open(place, topic, state, is_new=False)
                    opened += 1
                    if opened % CHANGES_PER_TURN == 0:  # it may be the controller, for which others wait
                        await self._tasks.sleep(0)
        return lost

    async def remove_strays(self) -> None:
        """Logs of topics that were deleted, or moved elsewhere, while this broker was away. The image is current."""
        for place in sorted(self.log_manager.logs.keys() - self.partitions.keys()):
            log = self.log_manager.logs.get(place)
            if log is None or place in self.partitions:  # its topic is there again meanwhile
                continue
            if log.topic_id is None:
                logger.warning(
                    "%s is in the data folder but not in the cluster: its files are left alone", place
                )
                continue
            logger.warning("%s is not on this broker any more: its files are removed", place)
            self.log_manager.delete(place)
            await self._tasks.sleep(0)

    async def begin_serving(self) -> None:
        """The broker is registered: lead and follow as the image says, from now on."""
        self._is_serving = True
        for number, (place, partition) in enumerate(list(self.partitions.items()), 1):
            if self.partitions.get(place) is not partition:  # closed meanwhile
                continue
            topic = self._image.topics.get(place.topic)
            if topic is not None and topic.topic_id == partition.topic_id:  # else it is about to be closed
                await self._take_role(partition, topic.partitions[place.partition])
            if number % CHANGES_PER_TURN == 0:
                await self._tasks.sleep(0)

    # Changes of the cluster

    async def act_on(self, changes: Difference) -> None:
        await self._in_turns(changes.close, self._close, PARTITIONS_PER_TURN)
        await self._in_turns(changes.open, self._open_new, PARTITIONS_PER_TURN)
        for name in changes.configure:
            self.configure(self._image.topics[name])
        if self._is_serving:
            for replicas in (changes.lead, changes.follow, changes.update):
                await self._in_turns(replicas, self._change, CHANGES_PER_TURN)

    async def _in_turns(
        self, things: Iterable[object], act: Callable[..., Awaitable[None]], per_turn: int
    ) -> None:
        for number, thing in enumerate(things, 1):
            await act(thing)
            if number % per_turn == 0:
                await self._tasks.sleep(0)

    async def _change(self, replica: Replica) -> None:
        partition = self.partitions.get(replica.place)
        if partition is not None:
            await self._take_role(partition, replica.state)

    async def _take_role(self, partition: Partition, state: PartitionState) -> None:
        """Lead, follow, or go on to do so with another in-sync set."""
        self._leading_later.pop(partition, None)
        before = partition.leader_epoch, partition.state.leader
        if state.leader != self._node_id:
            partition.change(state)
            await self.fetchers.follow(partition)
        elif partition.leader is not None:
            partition.change(state)
        else:
            self._leading_later[partition] = state
            await self.fetchers.forget(partition)
            if self._leading_later.pop(partition, None) is not state:
                return  # something newer came meanwhile
            partition.change(state)
        if before != (state.leader_epoch, state.leader):
            self._on_role(partition)

    def configure(self, topic: Topic) -> None:
        config = self._config_of(topic)
        partitions = self.partitions_of.get(topic.name, {}).values()
        for partition in partitions:
            partition.configure(config)
        self._throttle(partitions, config)

    def _throttle(self, partitions: Iterable[Partition], config: TopicConfig) -> None:
        """Note which of a topic's replicas are throttled; who was held back and is not any more goes on."""
        if self._throttled[0] is not config:
            leaders = throttled_partitions(config.leader_replication_throttled_replicas, self._node_id)
            followers = throttled_partitions(config.follower_replication_throttled_replicas, self._node_id)
            self._throttled = config, leaders, followers
        _, leaders, followers = self._throttled
        has_changed = False
        for partition in partitions:
            index = partition.topic_partition.partition
            before = partition.is_throttled_as_leader, partition.is_throttled_as_follower
            now = index in leaders, index in followers
            if before != now:
                partition.is_throttled_as_leader, partition.is_throttled_as_follower = now
                has_changed = True
        if has_changed:
            self._replication.leader_throttle.look_again()
            self._replication.follower_throttle.look_again()

    # Opening and closing

    async def _open_new(self, replica: Replica) -> None:
        topic = self._image.topics.get(replica.place.topic)
        if topic is not None and topic.topic_id == replica.topic_id:
            await self._open(replica.place, topic, replica.state, is_new=True)

    async def _open(
        self, place: TopicPartition, topic: Topic, state: PartitionState, *, is_new: bool
    ) -> None:
        log = await self._log_of(place, topic, is_new=is_new)
        high_watermark = self.log_manager.checkpointed_high_watermarks.pop(place, 0)
        # It leads nothing before it is told so in this life.
        unled = state._replace(leader=NO_LEADER, leader_epoch=-1, partition_epoch=-1)
        traffic = self.traffic.of(topic.name)
        partition = Partition(self._replication, topic.topic_id, unled, log, high_watermark, traffic)
        self.partitions[place] = partition
        for reference in (topic.name, topic.topic_id.bytes):
            self.partitions_of.setdefault(reference, {})[place.partition] = partition
        if topic.configs:
            self._throttle((partition,), self._config_of(topic))
        if log.failure is not None:
            self.take_offline(partition)

    async def _log_of(self, place: TopicPartition, topic: Topic, *, is_new: bool) -> Log:
        """The log of a partition: found in a data folder, or made. One that was there before and may lie in a
        folder that is offline is not made anew in another.
        """
        manager = self.log_manager
        log = manager.logs.get(place)
        its_ids = (topic.topic_id,) if is_new else (topic.topic_id, None)
        if log is not None and log.topic_id not in its_ids:
            if is_new and log.topic_id is not None:
                manager.delete(place)  # of a topic that had this name before
            elif not manager.set_aside(place):  # its id may be damaged, or lost: nothing is deleted for that
                return log
            log = None
        if log is not None:
            if log.topic_id is None and log.failure is None:
                logger.warning(
                    "%s does not say to which topic it belongs: its partition.metadata is written anew", place
                )
                log.adopt_topic_id(topic.topic_id)
            return log
        await manager.vacated(place)
        if not is_new:
            if manager.has_failed_folders:
                logger.error("%s is offline: it may lie in the data folder that cannot be used", place)
                return manager.create_offline(place)
            logger.warning("%s is in no data folder: it begins anew, empty", place)
        log = manager.create(place, topic.topic_id, self._config_of(topic))
        await self._tasks.sleep(0)
        return log

    async def _close(self, closed: Closed) -> None:
        partition = self.partitions.get(closed.place)
        if partition is None or partition.topic_id != closed.topic_id:
            return
        self._leading_later.pop(partition, None)
        await self.fetchers.forget(partition)
        del self.partitions[closed.place]
        for reference in (closed.place.topic, closed.topic_id.bytes):
            of_topic = self.partitions_of.get(reference, {})
            of_topic.pop(closed.place.partition, None)
            if not of_topic:
                self.partitions_of.pop(reference, None)
        if closed.place.topic not in self.partitions_of:
            self.traffic.forget(closed.place.topic)
        self.offline.discard(closed.place)
        partition.close(is_deleted=closed.topic_id not in self._image.topic_by_id)
        self._on_role(partition)
        self.log_manager.delete(closed.place)

    # Disks

    def on_log_failure(self, failed: Log, _error: OSError) -> None:
        partition = self.partitions.get(failed.topic_partition)
        if partition is not None:
            self.take_offline(partition)

    def take_offline(self, partition: Partition) -> None:
        self.offline.add(partition.topic_partition)
        partition.take_offline()
        self._on_role(partition)
        self.on_disk(partition)
        if self._is_serving:
            self._tasks.spawn(self.fetchers.forget(partition), name=f"forget {partition.topic_partition}")

    def on_log_made(self, made: Log) -> None:
        """There was no room for the log when its topic was created, and now there is."""
        partition = self.partitions[made.topic_partition]
        self.offline.discard(made.topic_partition)
        partition.come_online(made)
        self._on_role(partition)
        self.on_disk(partition)
        if self._is_serving:
            self._tasks.spawn(self.fetchers.follow(partition), name=f"follow {partition.topic_partition}")

    def high_watermark_of(self, log: Log) -> int:
        """Before its partition is open, as it was found."""
        place = log.topic_partition
        partition = self.partitions.get(place)
        if partition is None:
            return self.log_manager.checkpointed_high_watermarks.get(place, 0)
        return partition.high_watermark

    def stable_offset_of(self, log: Log) -> int:
        """Up to where no transaction is open: what lies behind is not compacted."""
        partition = self.partitions.get(log.topic_partition)
        return log.log_start_offset if partition is None else partition.last_stable_offset
