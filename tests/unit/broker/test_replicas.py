"""The partitions that a broker holds, while the cluster changes. R2, R6."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.broker.replicas import CHANGES_PER_TURN, Replicas
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log.host import LogHost, Owner
from moldau.log.manager import LogManager
from moldau.metadata.difference import difference
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionState, Record, TopicCreated, TopicDeleted
from moldau.records.record import Record as Stored
from moldau.records.record import build_batch
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.sim.world import SimHost, World

NODE_ID = 1
NAME = "topic"
OLD, NEW = UUID(int=1), UUID(int=2)
LED = PartitionState(leader=NODE_ID, leader_epoch=3, replicas=(NODE_ID,), isr=(NODE_ID,), partition_epoch=1)


class NoFetchers:
    async def follow(self, partition: Partition) -> None:
        pass

    async def forget(self, partition: Partition) -> None:
        pass


class Stage:
    """A broker's partitions, on a simulated disk."""

    def __init__(self, host: SimHost) -> None:
        runtime = self.runtime = host.runtime
        self.image = ClusterImage("c")
        config = topic_config(BrokerConfig.parse({}), {})
        self.replicas = Replicas(
            NODE_ID,
            runtime.tasks,
            self.image,
            Replication(NODE_ID, runtime),
            lambda _topic: config,
            lambda _partition: None,
        )
        self.replicas.fetchers = NoFetchers()
        self.manager = self.replicas.log_manager = LogManager(
            runtime,
            ["/data"],
            Owner("c", NODE_ID, 1),
            LogHost(lambda _name: config, high_watermark_of=self.replicas.high_watermark_of),
        )

    async def change(self, *records: Record) -> None:
        """As the feed does it."""
        before = dict(self.image.topics)
        for record in records:
            self.image.apply(record)
        await self.replicas.act_on(difference(NODE_ID, before, dict(self.image.topics)))

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> Any:
        return self.runtime.tasks.spawn(work, name="meanwhile")


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        on_host(world, world.host("broker"), scene)
        assert not world.failures


def on_host(world: World, host: SimHost, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    task = host.runtime.tasks.spawn(scene(Stage(host)), name="scene")

    async def wait() -> None:
        while not task.done():
            await world.sleep(0.01)
        task.result()

    world.run(wait())


def created(topic_id: UUID, partitions: int = 1) -> TopicCreated:
    return TopicCreated(NAME, topic_id, (LED,) * partitions, {})


def test_a_topic_that_is_deleted_while_the_broker_begins_to_serve_is_not_led() -> None:
    async def scene(stage: Stage) -> None:
        await stage.manager.open()
        stage.image.apply(created(OLD, 2 * CHANGES_PER_TURN))
        await stage.replicas.open_all()
        held = list(stage.replicas.partitions.values())
        deleting = stage.meanwhile(stage.change(TopicDeleted(NAME, OLD)))
        await stage.replicas.begin_serving()
        await deleting
        assert not stage.replicas.partitions
        assert all(partition.leader is None for partition in held)

    play(scene)


def test_a_topic_that_is_made_anew_while_the_broker_begins_to_serve_is_led_as_the_new_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.manager.open()
        stage.image.apply(created(OLD, 2 * CHANGES_PER_TURN))
        await stage.replicas.open_all()
        held = list(stage.replicas.partitions.values())
        changing = stage.meanwhile(stage.change(TopicDeleted(NAME, OLD), created(NEW)))
        await stage.replicas.begin_serving()
        await changing
        (partition,) = stage.replicas.partitions.values()
        assert partition.topic_id == NEW and partition.leader is not None
        assert all(old.leader is None for old in held)

    play(scene)


def test_a_topic_that_comes_while_strays_are_removed_keeps_its_logs() -> None:
    async def scene(stage: Stage) -> None:
        await stage.manager.open()
        for place in [TopicPartition("another", index) for index in range(400)] + [TopicPartition(NAME, 0)]:
            stage.manager.create(place, OLD)
        await stage.replicas.open_all()
        creating = stage.meanwhile(stage.change(created(NEW, 2)))
        await stage.replicas.remove_strays()
        await creating
        assert len(stage.replicas.partitions) == len(stage.manager.logs) == 2
        for place, partition in stage.replicas.partitions.items():
            assert stage.manager.logs[place] is partition.log
            assert partition.log.failure is None and partition.log.topic_id == NEW

    play(scene)


def test_what_was_not_committed_is_not_so_after_a_start_that_ends_too_soon() -> None:
    """Checkpoints may be written before all partitions are open, and then the broker may die."""

    async def first_life(stage: Stage) -> None:
        await stage.manager.open()
        await stage.change(TopicCreated(NAME, OLD, (LED._replace(replicas=(1, 2), isr=(1, 2)),), {}))
        await stage.replicas.begin_serving()
        (partition,) = stage.replicas.partitions.values()
        batch = memoryview(bytearray(build_batch([Stored(0, 1, None, b"value")])))
        assert not partition.append(batch, 0, len(batch), 1).error
        await partition.log.flush()
        assert partition.high_watermark == 0
        await stage.manager.write_checkpoints()

    async def second_life(stage: Stage) -> None:
        await stage.manager.open()
        await stage.manager.write_checkpoints()

    async def third_life(stage: Stage) -> None:
        await stage.manager.open()
        stage.image.apply(created(OLD))
        await stage.replicas.open_all()
        (partition,) = stage.replicas.partitions.values()
        assert partition.log.next_offset == 1
        assert partition.high_watermark == 0

    with World(1) as world:
        host = world.host("broker")
        on_host(world, host, first_life)
        for life in (second_life, third_life):
            host.kill()
            host.restart()
            on_host(world, host, life)
        assert not world.failures
