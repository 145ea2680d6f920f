"""Fewer brokers than the replicas of the cluster's own topics: who is told, and what changes when others join."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.broker.coordinators import OTHERS_JOIN_S
from moldau.broker.handlers.add_offsets_to_txn import handle as add_offsets
from moldau.broker.handlers.consumer_group_heartbeat import handle as heartbeat
from moldau.broker.handlers.find_coordinator import handle as find
from moldau.broker.handlers.txn_offset_commit import handle as commit_offsets
from moldau.broker.node import Broker
from moldau.broker.replicas import Replicas
from moldau.broker.shortage import Shortage, shortages
from moldau.broker.standing import standing_health
from moldau.config.broker import BrokerConfig
from moldau.controller.topics import NewTopic
from moldau.coordinator.reply import Reply
from moldau.metadata.records import NO_LEADER, BrokerChanged
from moldau.sim.world import World
from moldau.store.memory import MemoryStore, Tree

KAFKAS_DEFAULTS = {"listeners": "PLAINTEXT://:9092", "log.dirs": "/data", "moldau.http.port": "-1"}
FOR_ONE = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
TOPICS = [CONSUMER_OFFSETS, TRANSACTION_STATE]


class Stage:
    def __init__(self, world: World) -> None:
        self.world = world
        self._tree = Tree()

    async def start(self, broker_id: int, **settings: str) -> Broker:
        runtime = self.world.host(f"b{broker_id}").runtime
        given = KAFKAS_DEFAULTS | {"node.id": str(broker_id)} | settings
        store = MemoryStore(self._tree, runtime.tasks, holder=f"b{broker_id}")
        broker = Broker(BrokerConfig.parse(given), runtime, store, host_name=f"b{broker_id}")
        await self.on(broker, broker.start())
        return broker

    async def on(self, broker: Broker, work: Coroutine[Any, Any, Any]) -> Any:
        return await broker.runtime.tasks.spawn(work, name="test")


def play(scene: Any) -> None:
    with World(1) as world:
        world.run(scene(Stage(world)))
        assert not world.failures


def ask(broker: Broker, topic: str, key: str) -> Reply:
    """Anything of the key's coordinator."""
    runtime = broker.coordinators.groups if topic == CONSUMER_OFFSETS else broker.coordinators.transactions
    return runtime.read(key, lambda shard, moment: pytest.fail("nobody coordinates it"), lambda error: error)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_client_is_told_to_come_again_while_the_cluster_may_be_starting(topic: str) -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        found = await stage.on(broker, broker.coordinators.find(topic, "key"))
        assert (found.error, found.message) == (
            ErrorCode.coordinator_not_available,
            Shortage(topic, 3, 1).sentences,
        )
        assert await ask(broker, topic, "key") is ErrorCode.not_coordinator

    play(scene)


def test_the_time_for_others_to_join_begins_when_clients_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    open_all = Replicas.open_all

    async def open_slowly(replicas: Replicas) -> Any:
        await stages[0].world.sleep(OTHERS_JOIN_S)
        return await open_all(replicas)

    stages: list[Stage] = []
    monkeypatch.setattr(Replicas, "open_all", open_slowly)

    async def scene(stage: Stage) -> None:
        stages.append(stage)
        broker = await stage.start(1)
        assert await ask(broker, CONSUMER_OFFSETS, "group") is ErrorCode.not_coordinator
        await stage.world.sleep(OTHERS_JOIN_S)
        assert await ask(broker, CONSUMER_OFFSETS, "group") is ErrorCode.invalid_replication_factor

    play(scene)


def test_brokers_that_shut_down_or_have_are_not_missing() -> None:
    async def scene(stage: Stage) -> None:
        brokers = [await stage.start(number) for number in (1, 2, 3)]
        await stage.world.sleep(1)
        image = brokers[0].image
        for is_fenced in (False, True):
            image.apply(BrokerChanged(3, image.registered[3].epoch, is_fenced, is_shutting_down=True))
            assert shortages(brokers[0].config, image) == []

    play(scene)


@pytest.mark.parametrize("topic", TOPICS)
def test_later_what_needs_the_topic_gets_an_error_that_clients_show(topic: str) -> None:
    """COORDINATOR_NOT_AVAILABLE they do not: they ask again for ever. But the coordinator is found: those who read
    without a group ask for one as well, and need nothing of it.
    """

    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        await stage.world.sleep(OTHERS_JOIN_S)
        found = await stage.on(broker, broker.coordinators.find(topic, "key"))
        assert found == (ErrorCode.none, 1, "")
        assert await ask(broker, topic, "key") is ErrorCode.invalid_replication_factor

    play(scene)


def test_a_member_of_the_new_protocol_is_told_in_words() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        await stage.world.sleep(OTHERS_JOIN_S)
        fields = dict.fromkeys(("instance_id", "rack_id", "server_assignor"))
        request = SimpleNamespace(
            **fields,
            group_id="group",
            member_id="member",
            member_epoch=0,
            rebalance_timeout=timedelta(minutes=5),
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        context: Any = SimpleNamespace(version=0, client_id="test", client_host="127.0.0.1")
        answer = await heartbeat(broker, context, request)
        assert answer.error_code is ErrorCode.invalid_replication_factor
        assert answer.error_message == Shortage(CONSUMER_OFFSETS, 3, 1).sentences

    play(scene)


def test_a_broker_that_is_fenced_itself_does_not_name_itself_as_the_coordinator() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        await stage.world.sleep(OTHERS_JOIN_S)
        epoch = broker.image.registered[1].epoch
        broker.image.apply(BrokerChanged(1, epoch, is_fenced=True, is_shutting_down=False))
        context: Any = SimpleNamespace(version=3)
        answer = await stage.on(broker, find(broker, context, SimpleNamespace(key_type=0, key="group")))
        assert (answer.error_code, answer.node_id) == (ErrorCode.coordinator_not_available, NO_LEADER)

    play(scene)


async def offsets_added(broker: Broker, request: Any) -> ErrorCode:
    context: Any = SimpleNamespace(version=3)
    return (await add_offsets(broker, context, request)).error_code


async def offsets_committed(broker: Broker, request: Any) -> ErrorCode:
    async def breathe() -> None:
        pass

    context: Any = SimpleNamespace(version=3, breathe=breathe)
    (topic,) = (await commit_offsets(broker, context, request)).topics
    (outcome,) = topic.partitions
    return outcome.error_code


@pytest.mark.parametrize("asked", [offsets_added, offsets_committed])
def test_a_producer_that_takes_offsets_into_a_transaction_is_told_in_the_end(
    asked: Callable[[Broker, Any], Coroutine[Any, Any, ErrorCode]],
) -> None:
    offset = SimpleNamespace(partition_index=0, committed_offset=7, committed_metadata="")
    request = SimpleNamespace(
        transactional_id="copier",
        producer_id=1,
        producer_epoch=0,
        group_id="group",
        topics=(SimpleNamespace(name="orders", partitions=(offset,)),),
    )

    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        await stage.on(broker, broker.channel.create_topics([NewTopic("orders", 1, 1)]))
        assert await stage.on(broker, asked(broker, request)) is ErrorCode.not_coordinator
        await stage.world.sleep(OTHERS_JOIN_S)
        assert await stage.on(broker, asked(broker, request)) is ErrorCode.invalid_replication_factor

    play(scene)


def test_brokers_that_join_later_are_enough_without_a_restart() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        await stage.world.sleep(OTHERS_JOIN_S)
        assert await ask(broker, CONSUMER_OFFSETS, "group") is ErrorCode.invalid_replication_factor
        for other in (2, 3):
            assert len(standing_health(broker)["problems"]) == 2
            await stage.start(other)
        await stage.world.sleep(1)
        assert standing_health(broker)["problems"] == []
        for topic in TOPICS:
            assert await ask(broker, topic, "group") is ErrorCode.not_coordinator  # it is to look for another
            found = await stage.on(broker, broker.coordinators.find(topic, "group"))
            while found.error is ErrorCode.coordinator_not_available:  # made, and not led yet
                await stage.world.sleep(0.1)
                found = await stage.on(broker, broker.coordinators.find(topic, "group"))
            assert found.error is ErrorCode.none

    play(scene)


def test_health_names_what_does_not_work_and_which_setting_asks_for_it() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        groups, transactions = standing_health(broker)["problems"]
        assert groups == (
            "consumer groups do not work: __consumer_offsets is to have 3 replicas "
            "(offsets.topic.replication.factor), and the cluster has 1 broker"
        )
        assert transactions.startswith("transactions do not work: __transaction_state is to have 3 replicas ")
        is_well, document = broker._health()
        assert (is_well, document["status"]) == (
            True,
            "degraded",
        )  # it serves: no reason to take it out of service

    play(scene)


def test_a_broker_that_asks_for_one_replica_lacks_nothing() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1, **FOR_ONE)
        assert standing_health(broker)["problems"] == []
        for topic in TOPICS:
            assert (await stage.on(broker, broker.coordinators.find(topic, "key"))).error is ErrorCode.none

    play(scene)


def test_a_topic_that_is_there_lacks_nothing_whatever_the_settings_say_later() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1, **FOR_ONE)
        await stage.on(broker, broker.coordinators.find(CONSUMER_OFFSETS, "group"))
        found = shortages(BrokerConfig.parse({}), broker.image)
        assert [shortage.topic for shortage in found] == [TRANSACTION_STATE]

    play(scene)


def test_brokers_that_start_together_count_before_they_have_joined() -> None:
    async def scene(stage: Stage) -> None:
        broker = await stage.start(1)
        assert shortages(broker.config, broker.image, starting=3) == []
        assert shortages(broker.config, broker.image, starting=2) == [
            Shortage(topic, 3, 2) for topic in TOPICS
        ]

    play(scene)


def test_the_advice_is_what_as_many_brokers_can_do() -> None:
    assert Shortage(CONSUMER_OFFSETS, 3, 2).advice == (
        "Start more brokers, or set offsets.topic.replication.factor=2 in the configuration of the brokers "
        "and start them again."
    )
