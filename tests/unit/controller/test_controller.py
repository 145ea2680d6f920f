"""The controller keeps what it decides: over restarts, in order, and not at all where the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations
from moldau.controller.controller import Controller
from moldau.controller.persistence import PersistentImage, base64_of
from moldau.controller.producer_ids import BLOCK_SIZE
from moldau.controller.topics import MorePartitions, NewTopic, TopicReference
from moldau.metadata.records import BrokerInfo, PartitionsChanged, Record, ResourceType, TopicCreated
from moldau.sim.random import SimRandom
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Create, Operation


class Node:
    """As much of a broker as the controller needs: settings, and someone to tell."""

    def __init__(self, store: MemoryStore, state: PersistentImage) -> None:
        self.config = BrokerConfig.parse({})
        self.told: list[Record] = []
        self.controller = Controller(store, state, SimRandom(2), self, self.told.extend)

    @classmethod
    async def start(cls, store: MemoryStore) -> Node:
        node = cls(store, await PersistentImage.load(store, SimRandom(1)))
        await node.controller.register(BrokerInfo(1, {}))
        return node


class FailingStore(MemoryStore):
    fails = False

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.fails:
            raise OSError("the disk is full")
        await super().multi(operations)


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_everything_decided_is_there_after_a_restart() -> None:
    async def scene() -> None:
        tree = Tree()
        before = await Node.start(MemoryStore(tree))
        await before.controller.create_topics(
            [NewTopic("a", 2, configs=[("retention.ms", "5")]), NewTopic("b")]
        )
        await before.controller.create_partitions([MorePartitions("a", 4)])
        await before.controller.delete_topics([TopicReference("b")])
        await before.controller.alter_configs(
            [
                Alterations(ResourceType.TOPIC, "a", [Alteration("flush.ms", "7")]),
                Alterations(ResourceType.BROKER, "", [Alteration("log.retention.ms", "9")]),
                Alterations(ResourceType.BROKER, "1", [Alteration("log.retention.ms", "8")]),
                Alterations(ResourceType.GROUP, "g/1", [Alteration("consumer.session.timeout.ms", "50000")]),
            ]
        )
        after = await Node.start(MemoryStore(tree))
        was, now = before.controller.image, after.controller.image
        assert now.cluster_id == was.cluster_id
        assert now.topics == was.topics
        assert list(now.topics) == ["a"]
        assert len(now.topics["a"].partitions) == 4
        assert now.topics["a"].configs == {"retention.ms": "5", "flush.ms": "7"}
        assert now.broker_configs == {"": {"log.retention.ms": "9"}, "1": {"log.retention.ms": "8"}}
        assert now.configured(ResourceType.GROUP) == ["g/1"]

        await after.controller.alter_configs(
            [
                Alterations(ResourceType.TOPIC, "a", [], replace=True),
                Alterations(ResourceType.BROKER, "", [], replace=True),
            ]
        )
        again = await Node.start(MemoryStore(tree))
        assert again.controller.image.topics["a"].configs == {}
        assert again.controller.image.broker_configs == {"1": {"log.retention.ms": "8"}}

    run(scene())


def test_a_new_leader_epoch_is_kept_for_the_partitions_that_began_it() -> None:
    async def scene() -> None:
        tree = Tree()
        node = await Node.start(MemoryStore(tree))
        await node.controller.create_topics([NewTopic("a", 3), NewTopic("b")])
        node.told.clear()
        places = [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)]
        await node.controller.begin_epochs(places)
        assert [record.name for record in node.told if isinstance(record, PartitionsChanged)] == ["a", "b"]
        await node.controller.begin_epochs([TopicPartition("a", 2)])
        topics = (await Node.start(MemoryStore(tree))).controller.image.topics
        assert topics == node.controller.image.topics
        assert [state.leader_epoch for state in topics["a"].partitions] == [1, 0, 2]
        assert [state.partition_epoch for state in topics["a"].partitions] == [1, 0, 2]
        assert [state.leader for state in topics["a"].partitions] == [1, 1, 1]

    run(scene())


def test_a_topic_that_comes_back_has_a_new_id_and_no_old_settings() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        (first,) = await controller.create_topics([NewTopic("a", configs=[("retention.ms", "5")])])
        await controller.delete_topics([TopicReference("a")])
        (second,) = await controller.create_topics([NewTopic("a")])
        assert first.record is not None and second.record is not None
        assert first.record.topic_id != second.record.topic_id
        assert controller.image.topics["a"].configs == {}

    run(scene())


def test_the_broker_is_told_after_the_image_has_changed() -> None:
    async def scene() -> None:
        node = await Node.start(MemoryStore())
        node.told.clear()
        await node.controller.create_topics([NewTopic("a"), NewTopic("a b")])
        assert [type(record) for record in node.told] == [TopicCreated]

    run(scene())


def test_validate_only_changes_nothing() -> None:
    async def scene() -> None:
        node = await Node.start(MemoryStore())
        (created,) = await node.controller.create_topics([NewTopic("a")], validate_only=True)
        assert created.error is ErrorCode.none and created.record is not None
        assert not node.controller.image.topics
        await node.controller.create_topics([NewTopic("a")])
        version = node.controller.image.version
        await node.controller.create_partitions([MorePartitions("a", 9)], validate_only=True)
        change = Alterations(ResourceType.TOPIC, "a", [Alteration("flush.ms", "7")])
        await node.controller.alter_configs([change], validate_only=True)
        assert node.controller.image.version == version

    run(scene())


def test_of_two_who_create_the_same_topic_at_once_one_is_told_that_it_exists() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        outcomes = await asyncio.gather(*(controller.create_topics([NewTopic("a")]) for _ in range(2)))
        assert [outcome.error for (outcome,) in outcomes] == [ErrorCode.none, ErrorCode.topic_already_exists]

    run(scene())


def test_where_the_store_fails_nothing_changes_and_the_answer_says_so() -> None:
    async def scene() -> None:
        store = FailingStore()
        node = await Node.start(store)
        store.fails = True
        good, bad = await node.controller.create_topics([NewTopic("a"), NewTopic("a b")])
        assert (good.error, good.record) == (ErrorCode.kafka_storage_error, None)
        assert bad.error is ErrorCode.invalid_topic_exception
        assert not node.controller.image.topics
        store.fails = False
        (again,) = await node.controller.create_topics([NewTopic("a")])
        assert again.error is ErrorCode.none

    run(scene())


def test_a_controller_that_missed_a_change_changes_nothing() -> None:
    async def scene() -> None:
        store = MemoryStore()
        node = await Node.start(store)
        await store.multi([Create("/topics/a", b"someone else's")])
        (outcome,) = await node.controller.create_topics([NewTopic("a")])
        assert (outcome.error, outcome.record) == (ErrorCode.not_controller, None)
        assert not node.controller.image.topics

    run(scene())


@pytest.mark.parametrize("brokers", [1, 3])
def test_producer_ids_are_never_given_twice_by_any_broker_or_after_any_restart(brokers: int) -> None:
    async def scene() -> None:
        tree, given = Tree(), []
        for _ in range(3):
            nodes = [await Node.start(MemoryStore(tree)) for _ in range(brokers)]
            for _ in range(BLOCK_SIZE // 2 + 1):
                given += await asyncio.gather(*(node.controller.next_producer_id() for node in nodes))
        assert len(given) == len(set(given))
        assert min(given) == 0

    run(scene())


def test_a_producer_waits_for_the_block_to_be_durable() -> None:
    async def scene() -> None:
        store = MemoryStore()
        node = await Node.start(store)
        assert await node.controller.next_producer_id() == 0
        entry = await store.get("/producer_ids/next_block")
        assert entry is not None and int(entry.value) == BLOCK_SIZE

    run(scene())


def test_a_producer_is_told_to_come_again_where_the_store_cannot_be_written() -> None:
    async def scene() -> None:
        store = FailingStore()
        node = await Node.start(store)
        store.fails = True
        with pytest.raises(KafkaError) as refused:
            await node.controller.next_producer_id()
        assert refused.value.code is ErrorCode.coordinator_load_in_progress

    run(scene())


def test_a_cluster_id_is_22_letters_that_no_command_line_takes_for_an_option() -> None:
    async def scene() -> None:
        for seed in range(200):
            image = (await PersistentImage.load(MemoryStore(), SimRandom(seed))).image
            assert len(image.cluster_id) == 22
            assert not image.cluster_id.startswith("-")

    run(scene())
    assert len(base64_of(SimRandom(1).uuid())) == 22
