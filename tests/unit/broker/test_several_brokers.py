"""Several brokers of one cluster, on hosts of a simulated world with one store: R1-R4, R6, R8."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations
from moldau.controller.leaders import Election
from moldau.controller.producer_ids import Block, ProducerIds
from moldau.controller.reassignments import Reassignment
from moldau.controller.topics import NewTopic, TopicReference
from moldau.metadata.difference import Difference
from moldau.metadata.records import NO_LEADER, PartitionState, ResourceType
from moldau.peers.connection import PeerConnection
from moldau.records.record import Record, build_batch
from moldau.replication.partition import Partition
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree

T = TypeVar("T")
SETTINGS = {
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1000",
}
TOPIC = "topic"
PLACE = TopicPartition(TOPIC, 0)
PATIENCE_S = 30.0
FAR_S = 1e6
SESSION_S = 9.0
"""broker.session.timeout.ms, unless it is set."""


class Stage:
    """The brokers by id, each on a host of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = Tree()
        self.hosts: dict[int, SimHost] = {}
        self.brokers: dict[int, Broker] = {}
        self.stores: dict[int, MemoryStore] = {}

    async def start(self, *ids: int, **settings: str) -> None:
        tasks = []
        for broker_id in ids:
            name = f"b{broker_id}"
            host = self.hosts.get(broker_id) or self.world.host(name)
            runtime = host.runtime if host.alive else host.restart()
            self.hosts[broker_id] = host
            store = self.stores[broker_id] = MemoryStore(self.tree, runtime.tasks, holder=name)
            own = {"node.id": str(broker_id)} | {k.replace("_", "."): v for k, v in settings.items()}
            broker = Broker(BrokerConfig.parse(SETTINGS | own), runtime, store, boot_id="1", host_name=name)
            self.brokers[broker_id] = broker
            tasks.append(runtime.tasks.spawn(broker.start(), name="start"))
        for task in tasks:
            await task

    async def stop(self, broker_id: int) -> None:
        await self.on(broker_id, self.brokers[broker_id].stop())
        self.hosts[broker_id].kill()
        del self.brokers[broker_id]

    def kill(self, broker_id: int) -> None:
        self.stores[broker_id].abandon()
        self.hosts[broker_id].kill()
        del self.brokers[broker_id]

    async def on(self, broker_id: int, work: Coroutine[Any, Any, T]) -> T:
        return await self.hosts[broker_id].runtime.tasks.spawn(work, name="test")

    @property
    def controller(self) -> Broker:
        (found,) = [broker for broker in self.brokers.values() if broker.active_controller is not None]
        return found

    async def until(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        for _ in range(int(patience_s / 0.01)):
            if condition():
                return
            await self.world.sleep(0.01)
        assert condition()

    async def create(self, partitions: int = 1, **configs: str) -> None:
        settings = [(key.replace("_", "."), value) for key, value in configs.items()]
        topic = NewTopic(TOPIC, partitions, 3, configs=settings)
        broker = self.controller
        (outcome,) = await self.on(broker.node_id, broker.controller.create_topics([topic]))
        assert outcome.error is ErrorCode.none, outcome.message

    def state(self, broker_id: int | None = None, place: TopicPartition = PLACE) -> PartitionState:
        broker = self.controller if broker_id is None else self.brokers[broker_id]
        return broker.image.topics[place.topic].partitions[place.partition]

    def leader(self) -> Partition:
        return self.brokers[self.state().leader].partitions[PLACE]

    async def append(self, value: bytes = b"v", count: int = 1, partition: Partition | None = None) -> int:
        """Append records with acks=all at the leader; the offset after the last when they are committed."""
        led = partition or self.leader()
        broker_id = led._replication.node_id

        async def work() -> int:
            last = -1
            for number in range(count):
                buffer = memoryview(bytearray(build_batch([Record(0, 1, b"%d" % number, value)])))
                last = led.append(buffer, 0, len(buffer), 1).last_offset
            assert await led.committed(last + 1, FAR_S) is ErrorCode.none
            return last + 1

        return await self.on(broker_id, work())

    def logs(self) -> dict[int, bytes]:
        """What each broker that lives holds of the partition, byte for byte."""
        found = {}
        for broker_id, broker in self.brokers.items():
            active = broker.partitions[PLACE].log.segments.active  # the only one
            found[broker_id] = bytes(active.log.pread(active.size, 0)) if active.size else b""
        return found


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(7) as world:
        yield Stage(world)
        assert not world.failures, world.failures


def run(stage: Stage, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    stage.world.run(scene())


def test_brokers_that_start_together_are_one_cluster(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        assert len({broker.image.cluster_id for broker in stage.brokers.values()}) == 1
        await stage.until(lambda: all(set(b.image.brokers) == {1, 2, 3} for b in stage.brokers.values()))
        controllers = [b for b in stage.brokers.values() if b.active_controller is not None]
        assert len(controllers) == 1

    run(stage, scene)


def test_a_created_topic_is_led_where_every_broker_says_when_it_is_answered(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create(partitions=6)
        for index in range(6):
            place = TopicPartition(TOPIC, index)
            states = {stage.state(broker_id, place) for broker_id in stage.brokers}
            (state,) = states
            assert stage.brokers[state.leader].partitions[place].refusal is ErrorCode.none

    run(stage, scene)


def test_what_is_acknowledged_is_on_all_in_sync_replicas_byte_for_byte(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        assert await stage.append(count=50) == 50
        logs = stage.logs()
        assert len(logs) == 3 and len(set(logs.values())) == 1
        await stage.until(
            lambda: all(broker.partitions[PLACE].high_watermark == 50 for broker in stage.brokers.values())
        )

    run(stage, scene)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_another_in_sync_replica_leads_when_the_leader_is_gone(stage: Stage, how: str) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=5)
        before = stage.state()
        if how == "stopped":
            await stage.stop(before.leader)
        else:
            stage.kill(before.leader)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: stage.state().leader not in (before.leader, NO_LEADER))
        after = stage.state()
        assert after.leader in before.isr and after.leader_epoch > before.leader_epoch
        assert before.leader not in after.isr
        await stage.until(lambda: stage.leader().leader is not None)
        assert await stage.append(count=5) == 10
        await stage.start(before.leader)
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert len(set(stage.logs().values())) == 1

    run(stage, scene)


def test_the_controller_is_replaced_and_the_next_one_goes_on(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        first = stage.controller
        epoch = first.image.controller_epoch
        stage.kill(first.node_id)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: all(b.image.controller_epoch > epoch for b in stage.brokers.values()))
        assert first.node_id not in stage.controller.image.brokers

    run(stage, scene)


def test_a_request_for_the_controller_is_forwarded_from_any_broker(stage: Stage) -> None:
    """KIP-590: the answer is the controller's, and the topic is there for the client that asks next."""

    async def scene() -> None:
        await stage.start(1, 2, 3)
        (asked,) = [b for b in stage.brokers.values() if b.active_controller is None][:1]
        host = stage.world.host("client")
        topic = SimpleNamespace(
            name=TOPIC, num_partitions=2, replication_factor=3, assignments=(), configs=()
        )
        request = SimpleNamespace(topics=(topic,), timeout=1000, validate_only=False)

        async def ask() -> Any:
            connection = await PeerConnection.open(host.runtime, f"b{asked.node_id}", 9092, "test")
            return await connection.ask(19, 7, request)

        answer = await host.runtime.tasks.spawn(ask(), name="client")
        assert answer.topics[0].error_code is ErrorCode.none
        assert TOPIC in asked.image.topics

    run(stage, scene)


def test_a_follower_that_does_not_keep_up_leaves_the_in_sync_set_and_comes_back(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        leader, controller = stage.state().leader, stage.controller.node_id
        (lagging,) = [broker_id for broker_id in stage.brokers if broker_id not in (leader, controller)][:1]
        stage.world.net.cut(f"b{leader}", f"b{lagging}")
        await stage.append(count=3)
        assert lagging not in stage.state().isr
        stage.world.net.heal()
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})

    run(stage, scene)


def test_a_leader_that_is_cut_off_from_the_controller_is_replaced(stage: Stage) -> None:
    """Though both have their sessions: it could change no in-sync set, and its writers would wait for ever."""

    async def scene() -> None:
        await stage.start(1, 2, 3, broker_session_timeout_ms="1000")
        controller = stage.controller.node_id
        (old, third) = (broker_id for broker_id in stage.brokers if broker_id != controller)
        topic = NewTopic(TOPIC, assignments=[(0, (old, third, controller))])
        await stage.on(controller, stage.controller.controller.create_topics([topic]))
        await stage.append(count=2)
        stage.world.net.cut(f"b{old}", f"b{controller}")
        await stage.until(lambda: stage.state().leader == third)
        await stage.until(lambda: stage.leader().leader is not None)
        assert await stage.append(count=2) == 4
        stage.world.net.heal()
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert len(set(stage.logs().values())) == 1

    run(stage, scene)


def test_a_broker_that_acts_on_changes_for_long_is_not_taken_for_silent(stage: Stage) -> None:
    """Thousands of logs to make on a slow disk: were it fenced for that, all its leaders would move, and the others
    have as much to do."""

    async def scene() -> None:
        await stage.start(1, 2, 3, broker_session_timeout_ms="1000")
        slow = next(b for b in stage.brokers.values() if b is not stage.controller)
        epoch, act_on = slow.registrar.epoch, slow.replicas.act_on

        async def act_slowly(changes: Difference) -> None:
            await slow.tasks.sleep(5.0)
            await act_on(changes)

        slow.replicas.act_on = act_slowly  # type: ignore[method-assign]
        await stage.create()
        await stage.until(lambda: PLACE in slow.partitions)
        known = stage.controller.image.brokers[slow.node_id]
        assert known.epoch == epoch
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert stage.state().leader_epoch == 0, "nobody has moved its leaders meanwhile"

    run(stage, scene)


def test_below_min_insync_replicas_nothing_is_acknowledged_and_nothing_is_lost(stage: Stage) -> None:
    """R5; KIP-966."""

    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=3)
        leader = stage.state().leader
        for broker_id in [broker_id for broker_id in stage.brokers if broker_id != leader]:
            stage.kill(broker_id)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: stage.state().isr == (leader,))
        led = stage.brokers[leader].partitions[PLACE]
        await stage.until(lambda: not led.has_enough_in_sync())
        assert led.high_watermark == 3
        await stage.start(*{1, 2, 3} - {leader})
        await stage.until(lambda: len(stage.state().isr) == 3)
        assert await stage.append() == 4

    run(stage, scene)


def test_a_broker_that_was_fenced_comes_back_as_another_life(stage: Stage) -> None:
    """Its old epoch counts for nothing any more (KIP-903)."""

    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        (broker_id,) = [b.node_id for b in stage.brokers.values() if b.active_controller is None][:1]
        epoch = stage.brokers[broker_id].registrar.epoch
        lost = {broker_id: stage.brokers[broker_id].membership.incarnation}
        await stage.on(stage.controller.node_id, stage.controller.controller.fence(lost))
        await stage.until(lambda: stage.brokers[broker_id].registrar.epoch > epoch)
        await stage.until(lambda: set(stage.controller.image.brokers) == {1, 2, 3})
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        await stage.append(count=2)

    run(stage, scene)


def test_where_all_sessions_have_ended_together_nothing_changes(stage: Stage) -> None:
    """The store was gone: who comes back within the time of a session is in the cluster as before."""

    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create(partitions=3)
        before = stage.controller.image.topics[TOPIC].partitions
        elections = sum(broker.office.elections for broker in stage.brokers.values())
        for store in stage.stores.values():
            store.expire()
        await stage.until(
            lambda: sum(broker.office.elections for broker in stage.brokers.values()) > elections
        )
        await stage.append()
        await stage.world.sleep(2 * SESSION_S)
        assert set(stage.controller.image.brokers) == {1, 2, 3}
        assert stage.controller.image.topics[TOPIC].partitions == before
        assert {broker.registrar.epoch for broker in stage.brokers.values()} == {
            broker.epoch for broker in stage.controller.image.brokers.values()
        }

    run(stage, scene)


def test_who_does_not_come_back_after_the_store_within_the_time_of_a_session_is_fenced(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        leader = stage.state().leader
        stage.hosts[leader].pause()
        for store in stage.stores.values():
            store.expire()
        others = {1, 2, 3} - {leader}
        begun_s = stage.hosts[leader].clock.monotonic()
        await stage.until(
            lambda: any(
                controller is not None and set(controller.image.brokers) == others
                for controller in (broker.active_controller for broker in stage.brokers.values())
            )
        )
        assert stage.hosts[leader].clock.monotonic() - begun_s < 2 * SESSION_S
        await stage.until(lambda: stage.state().leader in others)
        await stage.append(count=2)
        stage.hosts[leader].go_on()
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})

    run(stage, scene)


def test_a_controller_that_loses_its_session_leaves_its_office(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        old = stage.controller
        office = old.controller
        stage.stores[old.node_id].expire()
        await stage.until(lambda: old.active_controller is not office)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        assert not office.is_active
        await stage.until(lambda: set(stage.controller.image.brokers) == {1, 2, 3})
        await stage.until(lambda: stage.leader().leader is not None)
        await stage.append(count=2)

    run(stage, scene)


def test_a_topic_deleted_while_a_broker_is_away_is_gone_there_too_when_it_is_back(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=2)
        (away,) = [b.node_id for b in stage.brokers.values() if b.active_controller is None][:1]
        await stage.stop(away)
        broker = stage.controller
        await stage.on(broker.node_id, broker.controller.delete_topics([TopicReference(TOPIC)]))
        await stage.start(away)
        back = stage.brokers[away]
        assert PLACE not in back.partitions and PLACE not in back.log_manager.logs

    run(stage, scene)


def test_a_topic_made_anew_under_its_old_name_begins_empty_on_a_broker_that_was_away(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(b"old", count=7)
        (away,) = [b.node_id for b in stage.brokers.values() if b.active_controller is None][:1]
        await stage.stop(away)
        broker = stage.controller
        await stage.on(broker.node_id, broker.controller.delete_topics([TopicReference(TOPIC)]))
        topic = NewTopic(TOPIC, assignments=[(0, (*stage.brokers, away))])
        (outcome,) = await stage.on(broker.node_id, broker.controller.create_topics([topic]))
        assert not outcome.error, outcome
        await stage.append(b"new")
        await stage.start(away)
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert len(set(stage.logs().values())) == 1 and b"old" not in stage.logs()[away]

    run(stage, scene)


def test_what_only_a_lost_leader_had_is_cut_off_when_it_comes_back(stage: Stage) -> None:
    """R4: by leader epochs. It was never acknowledged."""

    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(b"kept", count=3)
        old = stage.state().leader
        for other in (1, 2, 3):
            if other != old:
                stage.world.net.cut(f"b{old}", f"b{other}")
        led = stage.brokers[old].partitions[PLACE]
        buffer = memoryview(bytearray(build_batch([Record(0, 1, b"k", b"alone")])))

        async def append_alone() -> None:
            led.append(buffer, 0, len(buffer), 1)

        await stage.on(old, append_alone())
        stage.kill(old)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: stage.state().leader not in (old, NO_LEADER))
        await stage.until(lambda: stage.leader().leader is not None)
        await stage.append(b"later", count=2)
        stage.world.net.heal()
        await stage.start(old)
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        logs = stage.logs()
        assert len(set(logs.values())) == 1 and b"alone" not in logs[old] and b"later" in logs[old]

    run(stage, scene)


def test_a_broker_with_an_emptied_data_folder_is_filled_again(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=4)
        leader = stage.state().leader
        (emptied,) = [broker_id for broker_id in stage.brokers if broker_id != leader][:1]
        await stage.stop(emptied)
        runtime = stage.hosts[emptied].restart()
        await stage.on(emptied, _remove(runtime, f"/data/{TOPIC}-0"))
        stage.hosts[emptied].kill()
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.append(count=2)
        await stage.start(emptied)
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert len(set(stage.logs().values())) == 1

    run(stage, scene)


async def _remove(runtime: Any, folder: str) -> None:
    await runtime.tasks.in_thread(runtime.disk.remove_tree, folder)


def test_a_partition_is_moved_to_other_brokers(stage: Stage) -> None:
    """KIP-455: it is filled there first, then leaves, and its files go."""

    async def scene() -> None:
        await stage.start(1, 2, 3, 4)
        topic = NewTopic(TOPIC, assignments=[(0, (1, 2, 3))])
        broker = stage.controller
        await stage.on(broker.node_id, broker.controller.create_topics([topic]))
        await stage.append(count=5)
        wanted = [Reassignment(PLACE, (4, 2, 3))]
        (outcome,) = await stage.on(broker.node_id, broker.controller.alter_reassignments(wanted))
        assert not outcome.error
        await stage.until(lambda: stage.state().replicas == (4, 2, 3) and not stage.state().adding)
        await stage.until(lambda: PLACE not in stage.brokers[1].partitions)
        await stage.until(lambda: stage.state().leader == 4 or stage.state().leader in (2, 3))
        assert set(stage.state().isr) == {2, 3, 4}
        await stage.until(lambda: stage.leader().leader is not None)
        await stage.append(count=1)
        assert stage.brokers[4].partitions[PLACE].log.next_offset == 6

    run(stage, scene)


def test_the_preferred_leader_leads_again_when_asked_for(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        preferred = stage.state().replicas[0]
        await stage.stop(preferred)
        await stage.start(preferred)
        await stage.until(lambda: set(stage.state().isr) == {1, 2, 3})
        assert stage.state().leader != preferred
        broker = stage.controller
        (outcome,) = await stage.on(
            broker.node_id, broker.controller.elect_leaders(Election.PREFERRED, [PLACE])
        )
        assert not outcome.error and stage.state().leader == preferred
        await stage.until(lambda: stage.leader().leader is not None)
        await stage.append()

    run(stage, scene)


def test_settings_changed_on_one_broker_hold_on_all(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        change = Alterations(ResourceType.TOPIC, TOPIC, [Alteration("min.insync.replicas", "3")])
        broker = stage.controller
        (outcome,) = await stage.on(broker.node_id, broker.controller.alter_configs([change]))
        assert not outcome.error
        for other in stage.brokers.values():
            assert other.partitions[PLACE].log.config.min_insync_replicas == 3

    run(stage, scene)


def test_a_flush_policy_is_kept_by_followers_before_a_record_is_acknowledged(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create(flush_messages="1")
        await stage.append(count=3)
        for broker in stage.brokers.values():
            assert broker.partitions[PLACE].log.last_flushed_offset == 3

    run(stage, scene)


def test_a_stopped_cluster_starts_again_with_what_it_had(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=5)
        for broker_id in (1, 2, 3):
            await stage.stop(broker_id)
        await stage.start(1, 2, 3)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: len(stage.state().isr) == 3)
        await stage.until(lambda: stage.leader().leader is not None)
        assert await stage.append() == 6

    run(stage, scene)


def test_all_killed_at_once_lose_nothing(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        await stage.create()
        await stage.append(count=5)
        for broker_id in (1, 2, 3):
            stage.kill(broker_id)
        await stage.start(1, 2, 3)
        await stage.until(lambda: any(b.active_controller for b in stage.brokers.values()))
        await stage.until(lambda: len(stage.state().isr) == 3)
        await stage.until(lambda: stage.leader().leader is not None)
        assert await stage.append() == 6
        assert len(set(stage.logs().values())) == 1

    run(stage, scene)


def test_a_disk_that_fails_takes_only_its_replicas_and_others_lead(stage: Stage) -> None:
    """L5, R4: the broker goes on with what lies on its other disks."""

    async def scene() -> None:
        await stage.start(1, 2, 3, log_dirs="/data,/more")
        await stage.create(partitions=6)
        await stage.append(count=3)
        broker = stage.leader()._replication.node_id
        led = stage.brokers[broker].partitions[PLACE]

        async def fail() -> None:
            led.log.fail(OSError(5, "the disk is gone"))

        await stage.on(broker, fail())
        await stage.until(lambda: stage.state().leader not in (broker, NO_LEADER))
        assert broker not in stage.state().isr
        await stage.until(lambda: stage.leader().leader is not None)
        assert await stage.append() == 4
        others = [
            place
            for place, held in stage.brokers[broker].partitions.items()
            if place != PLACE and held.leader is not None
        ]
        assert others  # it leads on where its disk works

    run(stage, scene)


def min_isr_of(broker: Broker) -> int:
    value: int = broker.config["min.insync.replicas"]
    return value


def test_where_files_differ_min_insync_replicas_is_one_value_and_nothing_acknowledged_is_lost(
    stage: Stage,
) -> None:
    """The leader moves the high watermark on by the value by which the controller keeps replicas eligible (KIP-966)."""

    async def scene() -> None:
        await stage.start(1, min_insync_replicas="2")
        await stage.start(2, 3, min_insync_replicas="1")
        assert [min_isr_of(stage.brokers[broker_id]) for broker_id in (1, 2, 3)] == [2, 2, 2]
        topic = NewTopic(TOPIC, assignments=[(0, (2, 3))])
        await stage.on(1, stage.brokers[1].controller.create_topics([topic]))
        await stage.append()
        stage.kill(3)
        await stage.until(lambda: stage.state().isr == (2,))
        assert stage.state().elr == (3,)
        led = stage.brokers[2].partitions[PLACE]
        await stage.until(lambda: led.state.isr == (2,))

        async def write() -> ErrorCode:
            buffer = memoryview(bytearray(build_batch([Record(0, 1, b"k", b"v")])))
            last = led.append(buffer, 0, len(buffer), 1).last_offset
            return await led.committed(last + 1, stage.hosts[2].runtime.clock.monotonic() + 1)

        assert await stage.on(2, write()) is not ErrorCode.none, "broker 3 may lead, and does not have it"
        stage.kill(2)
        await stage.until(lambda: stage.state().leader == NO_LEADER)
        await stage.start(3)
        await stage.until(lambda: stage.state().leader == 3)

    run(stage, scene)


def test_a_producer_is_told_to_come_again_where_no_ids_can_be_had(stage: Stage) -> None:
    async def refuse() -> Block:
        raise KafkaError(ErrorCode.kafka_storage_error)

    async def scene() -> None:
        await stage.start(1)
        stage.brokers[1]._producer_ids = ProducerIds(refuse)
        with pytest.raises(KafkaError) as refused:
            await stage.brokers[1].next_producer_id()
        assert refused.value.code is ErrorCode.coordinator_load_in_progress

    run(stage, scene)


def test_a_broker_that_hangs_holds_up_one_change_of_the_cluster_and_no_more(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(1, 2, 3)
        controller = stage.controller
        hung = next(broker_id for broker_id in stage.brokers if broker_id != controller.node_id)
        others = tuple(broker_id for broker_id in stage.brokers if broker_id != hung)
        await stage.until(lambda: set(controller.image.brokers) == {1, 2, 3})
        stage.hosts[hung].pause()
        took_s = []
        for number in range(4):
            began_s = stage.world.loop.time()
            topic = NewTopic(f"t{number}", assignments=[(0, others)])
            await stage.on(controller.node_id, controller.controller.create_topics([topic]))
            took_s.append(stage.world.loop.time() - began_s)
            place = TopicPartition(topic.name, 0)
            assert stage.brokers[others[0]].partitions[place].refusal is ErrorCode.none
            assert all(topic.name in stage.brokers[broker_id].image.topics for broker_id in others)
        assert took_s[0] > 0.9 and max(took_s[1:]) < 0.2
        stage.hosts[hung].go_on()
        await stage.until(lambda: "t3" in stage.brokers[hung].image.topics)

    run(stage, scene)
