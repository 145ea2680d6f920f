"""A broker as a whole, on a simulated host: its restarts of each kind, and topics that take it long."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.node import Broker
from moldau.broker.replicas import PARTITIONS_PER_TURN
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations
from moldau.controller.topics import NewTopic, TopicReference
from moldau.coordinator.runtime import CoordinatorRuntime, partition_for
from moldau.log.manager import PRODUCER_CHECK_INTERVAL_S
from moldau.metadata.records import NO_LEADER, PartitionState, ResourceType, TopicCreated
from moldau.records.record import Record, build_batch
from moldau.replication.partition import Partition
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree

SETTINGS = {
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "offsets.topic.replication.factor": "1",
}
TOPIC = "topic"


class Stage:
    """A broker on a host of a simulated world, and its next lives."""

    def __init__(self, world: World) -> None:
        self._host: SimHost = world.host("broker")
        self._tree = Tree()
        self.broker: Broker

    async def start(self) -> Broker:
        runtime = self._host.runtime if self._host.alive else self._host.restart()
        self.broker = Broker(BrokerConfig.parse(SETTINGS), runtime, MemoryStore(self._tree, runtime.tasks))
        await runtime.tasks.spawn(self.broker.start(), name="start")
        return self.broker

    async def end(self, how: str, remove: str | None = None) -> None:
        """`remove` is a folder that goes after the stop."""
        if how == "stopped":
            tasks = self._host.runtime.tasks
            await tasks.spawn(self.broker.stop(), name="stop")
            if remove is not None:
                await tasks.spawn(self._remove(remove), name="remove")
            self._host.kill()
        elif how == "killed":
            self._host.kill()
        else:
            self._host.crash()

    async def _remove(self, folder: str) -> None:
        await self._host.runtime.tasks.in_thread(self._host.runtime.disk.remove_tree, folder)


def append(partition: Partition, value: bytes) -> None:
    buffer = bytearray(build_batch([Record(0, 1, b"key", value)]))
    done = partition.log.append(
        memoryview(buffer), 0, len(buffer), leader_epoch=partition.leader_epoch, now_ms=1
    )
    assert not done.error


@pytest.mark.parametrize("how", ["stopped", "killed", "without power"])
def test_a_restart_ends_the_leader_epoch_so_that_readers_can_tell_what_was_lost(how: str) -> None:
    """KIP-101, KIP-320: as Kafka's, an epoch is one leader's uninterrupted writing."""

    async def scene() -> None:
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic(TOPIC, 2, 1)])
        for _ in range(5):
            append(broker.partition(TOPIC, 1), b"written and perhaps lost")
        await stage.end(how)

        broker = await stage.start()
        assert all(state.leader_epoch > 0 for state in broker.image.topics[TOPIC].partitions)
        partition = broker.partition(TOPIC, 1)
        kept = partition.log.next_offset
        append(partition, b"written later")
        assert partition.log.end_offset_for_epoch(0) == (0, kept)

        await stage.end("stopped")
        broker = await stage.start()
        assert broker.partition(TOPIC, 1).leader_epoch > partition.leader_epoch
        assert broker.partition(TOPIC, 1).log.end_offset_for_epoch(0) == (0, kept)

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())
        assert not world.failures


def test_a_log_that_is_gone_begins_anew_in_a_new_epoch() -> None:
    async def scene() -> None:
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic(TOPIC, 1, 1)])
        append(broker.partition(TOPIC, 0), b"gone with its folder")
        await stage.end("stopped", remove=f"/data/{TOPIC}-0")
        broker = await stage.start()
        assert broker.partition(TOPIC, 0).log.next_offset == 0
        assert broker.partition(TOPIC, 0).leader_epoch > 0

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


def test_making_and_deleting_many_partitions_leaves_turns_for_others() -> None:
    partitions = 100

    async def scene() -> None:
        broker = await stage.start()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await broker.tasks.sleep(0)
                turns += 1

        waiting = broker.tasks.spawn(others(), name="others")
        await broker.controller.create_topics([NewTopic(TOPIC, partitions, 1)])
        assert turns >= partitions
        turns = 0
        await broker.controller.delete_topics([TopicReference(TOPIC)])
        assert turns >= partitions // PARTITIONS_PER_TURN
        waiting.cancel()

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


def test_a_new_topic_does_not_take_over_a_log_that_lay_there_before_and_has_no_id() -> None:
    """A topic was deleted, and the power went before its folder did; or someone put it there."""

    async def scene() -> None:
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic(TOPIC, 1, 1)])
        append(broker.partition(TOPIC, 0), b"of another topic")
        disk = broker.runtime.disk
        await broker.tasks.spawn(broker.stop(), name="stop")
        disk.rename(f"/data/{TOPIC}-0", "/data/new-0")
        disk.remove("/data/new-0/partition.metadata")
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic("new", 1, 1)])
        assert broker.partition("new", 0).log.next_offset == 0
        assert [name for name in disk.list("/data") if name.startswith("new-0.") and name.endswith("-stray")]
        await broker.tasks.spawn(broker.stop(), name="stop")

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_recorded_topic_that_no_folder_can_hold_is_offline_alone_and_can_be_deleted(how: str) -> None:
    """It was recorded before anyone looked at how long the names of its folders are."""
    poison = "x" * 254

    async def scene() -> None:
        broker = await stage.start()
        state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        record = TopicCreated(poison, uuid.UUID(int=7), (state, state), {})
        await broker.controller.create_topics([NewTopic(TOPIC, 1, 1)])
        await broker.controller._queue.perform(lambda: (None, [record]))
        await broker.controller.until_known(broker.controller.position)
        for _ in range(2):
            assert broker.failure is None
            assert sorted(broker.offline) == [TopicPartition(poison, 0), TopicPartition(poison, 1)]
            assert all(folder.failure is None for folder in broker.log_manager.folders)
            append(broker.partition(TOPIC, 0), b"served")
            await stage.end(how)
            broker = await stage.start()
        (deleted,) = await broker.controller.delete_topics([TopicReference(poison)])
        assert deleted.error == ErrorCode.none
        assert not broker.offline and poison not in broker.image.topics
        append(broker.partition(TOPIC, 0), b"served")
        await stage.end(how)
        broker = await stage.start()
        assert not broker.offline and broker.partition(TOPIC, 0).log.next_offset == 3

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())
        assert not world.failures


def test_a_log_without_a_topic_is_neither_shortened_nor_compacted() -> None:
    async def scene() -> None:
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic(TOPIC, 1, 1)])
        assert broker._topic_config(TOPIC).retention_ms > 0
        stray = broker._topic_config("stray")
        assert (stray.retention_ms, stray.retention_bytes, stray.compact) == (-1, -1, False)

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())
        assert not world.failures


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_start_loads_each_coordinator_once(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, int]] = []
    lead = CoordinatorRuntime.lead

    def counted(runtime: CoordinatorRuntime[Any], index: int, journal: Any) -> None:
        loaded.append((runtime.topic, index))
        lead(runtime, index, journal)

    async def scene() -> None:
        broker = await stage.start()
        await broker.coordinators.find(CONSUMER_OFFSETS, "group")
        await stage.end(how)
        monkeypatch.setattr(CoordinatorRuntime, "lead", counted)
        broker = await stage.start()
        assert sorted(loaded) == [(CONSUMER_OFFSETS, index) for index in range(50)]
        assert broker.coordinators.groups.led == list(range(50))

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


def test_a_coordinator_is_found_when_it_serves_also_by_those_who_ask_while_its_topic_is_made() -> None:
    async def scene() -> None:
        broker = await stage.start()
        key, found = "group", []
        index = partition_for(key, 50)

        async def ask() -> None:
            error, node_id, _ = await broker.coordinators.find(CONSUMER_OFFSETS, key)
            found.append((error, node_id, broker.coordinators.groups.leads(index)))

        asking = []
        while len(found) < 20:
            asking.append(broker.tasks.spawn(ask(), name="ask"))
            await broker.tasks.sleep(0)
        for task in asking:
            await task
        assert set(found) == {(ErrorCode.none, broker.node_id, True)}

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


def test_a_partition_that_is_offline_has_no_coordinator() -> None:
    async def scene() -> None:
        broker = await stage.start()
        await broker.coordinators.find(CONSUMER_OFFSETS, "group")
        broker.partition(CONSUMER_OFFSETS, partition_for("group", 50)).log.fail(OSError("the disk is gone"))
        error, node_id, _ = await broker.coordinators.find(CONSUMER_OFFSETS, "group")
        assert (error, node_id) == (ErrorCode.coordinator_not_available, NO_LEADER)

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())


def test_for_how_long_producers_are_remembered_can_be_changed_while_it_runs() -> None:
    async def scene() -> None:
        broker = await stage.start()
        await broker.controller.create_topics([NewTopic(TOPIC, 1, 1)])
        partition = broker.partition(TOPIC, 0)
        now_ms = broker.clock.wall_ms()
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        batch = build_batch([Record(0, now_ms, b"key", b"value")], **producer)
        assert not partition.log.append(memoryview(bytearray(batch)), 0, len(batch), 0, now_ms).error
        await world.sleep(2 * PRODUCER_CHECK_INTERVAL_S)
        assert len(partition.log.producers()) == 1
        change = Alteration("producer.id.expiration.ms", "1000")
        (outcome,) = await broker.controller.alter_configs([Alterations(ResourceType.BROKER, "", [change])])
        assert not outcome.error
        await world.sleep(PRODUCER_CHECK_INTERVAL_S)
        assert partition.log.producers() == []

    with World(1) as world:
        stage = Stage(world)
        world.run(scene())
        assert not world.failures
