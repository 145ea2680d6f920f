"""The controller keeps what it decides: over restarts, in order, and not at all where the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.controller import change_queue
from moldau.controller import controller as controller_module
from moldau.controller.alter_partition import InSync, Proposal
from moldau.controller.brokers import Registration
from moldau.controller.configs import Alteration, Alterations
from moldau.controller.controller import Controller, Heartbeat
from moldau.controller.leaders import Election
from moldau.controller.loading import load_image
from moldau.controller.persistence import PersistentImage, base64_of
from moldau.controller.producer_ids import BLOCK_SIZE, ProducerIds
from moldau.controller.reassignments import Reassignment
from moldau.controller.slices import PARTITIONS_PER_SLICE
from moldau.controller.topics import TOPIC_WEIGHT, MorePartitions, NewTopic, TopicReference
from moldau.metadata.image import image_from, snapshot_of
from moldau.metadata.records import (
    ConfigChanged,
    PartitionsChanged,
    PartitionState,
    Position,
    Record,
    ResourceType,
    TopicCreated,
)
from moldau.sim.random import SimRandom
from moldau.store.memory import MemoryStore, Tree

from .small_cluster import incarnation
from .stores import TestTasks, TroubledStore


class Node:
    """As much of a broker as the controller needs: settings, and someone to tell."""

    def __init__(self, state: PersistentImage, **settings: str) -> None:
        self.config = BrokerConfig.parse({key.replace("_", "."): value for key, value in settings.items()})
        self.told: list[Record] = []
        self.fenced: list[str] = []
        self.controller = Controller(
            state,
            SimRandom(2),
            self,
            TestTasks(),
            on_delta=lambda delta: self.told.extend(delta.records),
            on_fenced=self.fenced.append,
        )

    @classmethod
    async def start(cls, store: MemoryStore, brokers: Sequence[int] = (1,), **settings: str) -> Node:
        seed = len(store.tree.entries)
        node = cls(await PersistentImage.take_over(store, SimRandom(seed), brokers[0]), **settings)
        for broker_id in brokers:
            await node.join(broker_id)
        return node

    async def join(self, broker_id: int, **fields: Any) -> int:
        """Register and serve; the broker's epoch."""
        controller = self.controller
        registration = Registration(broker_id, incarnation(broker_id), {})._replace(**fields)
        epoch = await controller.register_broker(registration)
        beat = await controller.heartbeat(broker_id, epoch, controller.position)
        assert not beat.is_fenced
        return epoch

    def state(self, name: str = "a", index: int = 0) -> PartitionState:
        return self.controller.image.topics[name].partitions[index]


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
        lost = [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)]
        await node.join(1, incarnation=UUID(int=1), previous_epoch=epoch_of(node, 1), lost=lost)
        assert [record.name for record in node.told if isinstance(record, PartitionsChanged)] == ["a", "b"]
        more = [TopicPartition("a", 2)]
        await node.join(1, incarnation=UUID(int=2), previous_epoch=epoch_of(node, 1), lost=more)
        topics = (await load_image(MemoryStore(tree))).topics
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


def test_a_request_for_many_topics_lets_others_run_meanwhile() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        asked = asyncio.ensure_future(controller.create_topics([NewTopic(f"t{n}") for n in range(2_000)]))
        turns = 0
        while not controller.image.topics:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 2_000 * TOPIC_WEIGHT // PARTITIONS_PER_SLICE
        assert {outcome.error for outcome in await asked} == {ErrorCode.none}

    run(scene())


def test_of_two_who_create_the_same_topic_at_once_one_is_told_that_it_exists() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        outcomes = await asyncio.gather(*(controller.create_topics([NewTopic("a")]) for _ in range(2)))
        assert [outcome.error for (outcome,) in outcomes] == [ErrorCode.none, ErrorCode.topic_already_exists]

    run(scene())


def test_where_the_store_fails_nothing_changes_and_the_answer_says_so() -> None:
    async def scene() -> None:
        store = TroubledStore()
        node = await Node.start(store)
        store.troubles = ["full"]
        good, bad = await node.controller.create_topics([NewTopic("a"), NewTopic("a b")])
        assert (good.error, good.record) == (ErrorCode.kafka_storage_error, None)
        assert bad.error is ErrorCode.invalid_topic_exception
        assert not node.controller.image.topics
        (again,) = await node.controller.create_topics([NewTopic("a")])
        assert again.error is ErrorCode.none
        assert node.controller.is_active and not node.fenced

    run(scene())


def test_of_a_change_that_stops_halfway_each_hears_what_became_of_its_own() -> None:
    async def scene() -> None:
        store = TroubledStore()
        node = await Node.start(store)
        store.troubles = ["", "full"]
        done, failed = await node.controller.create_topics([NewTopic("a", 200), NewTopic("b", 200)])
        assert (done.error, failed.error) == (ErrorCode.none, ErrorCode.kafka_storage_error)
        assert list(node.controller.image.topics) == ["a"]
        (again,) = await node.controller.create_topics([NewTopic("b", 200)])
        assert again.error is ErrorCode.none
        assert (await load_image(store)).topics == node.controller.image.topics

    run(scene())


def test_a_controller_that_was_replaced_changes_nothing_and_says_so_once() -> None:
    async def scene() -> None:
        store = MemoryStore()
        node = await Node.start(store)
        waiting = node.controller.deltas.next_delta()
        await PersistentImage.take_over(store, SimRandom(9), 2)
        for _ in range(2):
            (outcome,) = await node.controller.create_topics([NewTopic("a")])
            assert (outcome.error, outcome.record) == (ErrorCode.not_controller, None)
        assert not node.controller.image.topics
        assert not node.controller.is_active and len(node.fenced) == 1
        assert waiting.done()
        with pytest.raises(KafkaError) as refused:
            await node.controller.register_broker(Registration(3, UUID(int=3), {}))
        assert refused.value.code is ErrorCode.not_controller

    run(scene())


def test_a_caller_that_is_cancelled_does_not_stop_its_change() -> None:
    async def scene() -> None:
        node = await Node.start(MemoryStore())
        asked = asyncio.ensure_future(node.controller.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        asked.cancel()
        (after,) = await node.controller.create_topics([NewTopic("b")])
        assert after.error is ErrorCode.none
        assert list(node.controller.image.topics) == ["a", "b"]

    run(scene())


def test_producer_ids_are_never_given_twice_by_any_broker_or_after_any_restart() -> None:
    async def scene() -> None:
        tree, given = Tree(), []
        for _ in range(3):
            node = await Node.start(MemoryStore(tree))
            brokers = [ProducerIds(node.controller.allocate_producer_ids) for _ in range(3)]
            for _ in range(BLOCK_SIZE // 2 + 1):
                given += await asyncio.gather(*(ids.next() for ids in brokers))
        assert len(given) == len(set(given))
        assert min(given) == 0

    run(scene())


def test_a_producer_waits_for_the_block_to_be_durable() -> None:
    async def scene() -> None:
        store = MemoryStore()
        node = await Node.start(store)
        assert await ProducerIds(node.controller.allocate_producer_ids).next() == 0
        entry = await store.get("/producer_ids/next_block")
        assert entry is not None and int(entry.value) == BLOCK_SIZE

    run(scene())


def test_a_cluster_id_is_22_letters_that_no_command_line_takes_for_an_option() -> None:
    async def scene() -> None:
        for seed in range(200):
            image = (await PersistentImage.take_over(MemoryStore(), SimRandom(seed), 1)).image
            assert len(image.cluster_id) == 22
            assert not image.cluster_id.startswith("-")

    run(scene())
    assert len(base64_of(SimRandom(1).uuid())) == 22


def altered(node: Node, *isr: int, index: int = 0) -> Proposal:
    topic = node.controller.image.topics["a"]
    state = topic.partitions[index]
    members = [InSync(broker_id) for broker_id in isr]
    return Proposal(topic.topic_id, index, state.leader_epoch, state.partition_epoch, members)


async def three(store: MemoryStore, partitions: int = 1, **settings: str) -> Node:
    node = await Node.start(store, (1, 2, 3), **settings)
    await node.controller.create_topics([NewTopic("a", partitions, 3)])
    return node


def epoch_of(node: Node, broker_id: int) -> int:
    return node.controller.image.registered[broker_id].epoch


def test_proposals_that_wait_together_cost_one_write() -> None:
    async def scene() -> None:
        store = TroubledStore()
        node = await three(store, 30)
        led = {index: node.state(index=index).leader for index in range(30)}
        store.writes.clear()
        answers = await asyncio.gather(
            *(
                node.controller.alter_partition(
                    leader, epoch_of(node, leader), [altered(node, leader, index=index)]
                )
                for index, leader in led.items()
            )
        )
        assert [answer.error for (answer,) in answers] == [ErrorCode.none] * 30
        assert len(store.writes) == 1
        assert [node.state(index=index).isr for index in range(30)] == [(leader,) for leader in led.values()]
        assert (await load_image(store)).topics == node.controller.image.topics

    run(scene())


def test_proposals_that_wait_together_fail_together() -> None:
    async def scene() -> None:
        store = TroubledStore()
        node = await three(store, 2)
        store.troubles = ["full"]
        leaders = [node.state(index=index).leader for index in (0, 1)]
        answers = await asyncio.gather(
            *(
                node.controller.alter_partition(
                    leader, epoch_of(node, leader), [altered(node, leader, index=index)]
                )
                for index, leader in enumerate(leaders)
            ),
            return_exceptions=True,
        )
        assert [getattr(answer, "code", None) for answer in answers] == [ErrorCode.kafka_storage_error] * 2
        assert [len(node.state(index=index).isr) for index in (0, 1)] == [3, 3]

    run(scene())


def test_a_proposal_of_a_broker_that_was_replaced_meanwhile_is_refused_alone() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        leader = node.state().leader
        with pytest.raises(KafkaError) as refused:
            await node.controller.alter_partition(leader, 0, [altered(node, leader)])
        assert refused.value.code is ErrorCode.stale_broker_epoch
        assert len(node.state().isr) == 3

    run(scene())


def test_a_broker_whose_session_ends_is_fenced_and_comes_back_in_a_new_epoch() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        leader = node.state().leader
        before = epoch_of(node, leader)
        await node.controller.broker_lost(leader, UUID(int=12345))
        assert node.state().leader == leader, "that was another life of it"
        await node.controller.broker_lost(leader, incarnation(leader))
        assert leader not in node.controller.image.brokers
        assert node.state().leader not in (leader, -1)
        assert leader not in node.state().isr
        with pytest.raises(KafkaError):
            await node.controller.heartbeat(leader, before - 1, node.controller.position)
        assert await node.join(leader, incarnation=UUID(int=77)) > before

    run(scene())


def test_whoever_has_no_session_is_fenced_when_the_folder_is_read() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        await node.controller.brokers_live({1: incarnation(1), 2: UUID(int=5)})
        assert list(node.controller.image.brokers) == [1]
        assert node.state().leader == 1
        with pytest.raises(KafkaError) as refused:
            await node.controller.register_broker(Registration(2, UUID(int=6), {}))
        assert refused.value.code is ErrorCode.duplicate_broker_registration
        await node.join(2, incarnation=UUID(int=5))

    run(scene())


def test_who_has_lost_its_session_and_has_not_heard_of_it_stays_fenced() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        epoch = epoch_of(node, 2)
        await node.controller.brokers_live({1: incarnation(1), 3: incarnation(3)})
        beat = await node.controller.heartbeat(2, epoch, node.controller.position)
        assert beat.is_fenced
        await node.controller.brokers_live({one: incarnation(one) for one in (1, 2, 3)})
        beat = await node.controller.heartbeat(2, epoch, node.controller.position)
        assert not beat.is_fenced

    run(scene())


def test_a_broker_serves_when_it_has_seen_its_registration_and_not_before() -> None:
    async def scene() -> None:
        node = await Node.start(MemoryStore())
        early = node.controller.position
        epoch = await node.controller.register_broker(Registration(2, UUID(int=2), {}))
        beat = await node.controller.heartbeat(2, epoch, early)
        assert beat == (False, True, False)
        beat = await node.controller.heartbeat(2, epoch, node.controller.position)
        assert beat == (True, False, False)
        assert epoch_of(node, 2) == epoch

    run(scene())


def test_a_broker_may_end_when_its_leaders_have_moved_and_all_others_know() -> None:
    async def scene() -> None:
        node = await three(MemoryStore(), 3)
        controller = node.controller
        epoch = epoch_of(node, 1)

        async def beat() -> Heartbeat:
            return await controller.heartbeat(1, epoch, controller.position, wants_shut_down=True)

        for broker_id in (2, 3):
            controller.applied(broker_id, controller.position)
        assert await beat() == (True, False, False)
        assert all(1 not in node.state(index=index).isr for index in range(3))
        assert all(node.state(index=index).leader in (2, 3) for index in range(3))
        controller.applied(2, controller.position)
        assert not (await beat()).should_shut_down
        controller.applied(3, controller.position)
        assert await beat() == (True, True, True)
        assert list(controller.image.brokers) == [2, 3]

    run(scene())


def test_a_change_can_be_waited_for_until_brokers_have_acted_on_it() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        controller = node.controller
        (made,) = await controller.create_topics([NewTopic("b", 1, 3)])
        assert made.position == controller.position
        waiting = asyncio.ensure_future(controller.until_applied(made.position, [1, 2, 3], 30))
        controller.applied(1, made.position)
        controller.applied(2, Position(made.position.epoch, made.position.sequence - 1))
        await asyncio.sleep(0)
        assert not waiting.done()
        controller.applied(2, made.position)
        await controller.broker_lost(3, incarnation(3))
        assert await waiting is True
        assert await controller.until_applied(made.position, [1, 2], 30) is True
        assert await controller.until_applied(controller.position, [1], 0) is False

    run(scene())


def test_the_controller_goes_by_its_own_settings_before_its_broker_has_heard_of_them() -> None:
    """Else it would keep replicas eligible by the old min.insync.replicas while leaders commit by the new one."""

    async def scene() -> None:
        node = await three(MemoryStore(), min_insync_replicas="3")
        change = Alterations(ResourceType.BROKER, "", [Alteration("min.insync.replicas", "1")])
        (outcome,) = await node.controller.alter_configs([change])
        assert not outcome.error
        leader = node.state().leader
        node.controller.applied(leader, node.controller.position)
        await node.controller.alter_partition(leader, epoch_of(node, leader), [altered(node, leader)])
        assert (node.state().isr, node.state().elr) == ((leader,), ())

    run(scene())


@pytest.mark.parametrize("resource", [(ResourceType.BROKER, ""), (ResourceType.TOPIC, "a")])
def test_a_leader_that_has_not_heard_of_a_higher_min_isr_gets_no_smaller_set(
    resource: tuple[ResourceType, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on to commit with that set, and those who fell out of it would stay eligible."""
    monkeypatch.setattr(controller_module, "KNOWN_PATIENCE_S", 0)

    async def scene() -> None:
        node = await three(MemoryStore())
        leader = node.state().leader
        before, heard = node.state(), node.controller.position
        await node.controller.alter_configs(
            [Alterations(*resource, [Alteration("min.insync.replicas", "2")])]
        )
        epoch = epoch_of(node, leader)
        node.controller.applied(leader, heard)
        with pytest.raises(KafkaError) as refused:
            await node.controller.alter_partition(leader, epoch, [altered(node, leader)])
        assert refused.value.code is ErrorCode.request_timed_out
        assert node.state() == before
        node.controller.applied(leader, node.controller.position)
        await node.controller.alter_partition(leader, epoch, [altered(node, leader)])
        assert node.state().isr == (leader,) and len(node.state().elr) == 2

    run(scene())


def test_a_proposal_that_waits_behind_a_higher_min_isr_is_not_decided_by_it() -> None:
    async def scene() -> None:
        node = await three(MemoryStore())
        leader, before = node.state().leader, node.state()
        node.controller.applied(leader, node.controller.position)
        change = Alterations(ResourceType.TOPIC, "a", [Alteration("min.insync.replicas", "2")])
        raised = asyncio.ensure_future(node.controller.alter_configs([change]))
        asked = asyncio.ensure_future(
            node.controller.alter_partition(leader, epoch_of(node, leader), [altered(node, leader)])
        )
        with pytest.raises(KafkaError):
            await asked
        assert node.state() == before
        for broker_id in (1, 2, 3):
            node.controller.applied(broker_id, node.controller.position)
        await raised

    run(scene())


def test_a_lower_min_isr_ends_eligibility_before_leaders_hear_of_it() -> None:
    async def scene() -> None:
        node = await three(MemoryStore(), min_insync_replicas="3")
        leader = node.state().leader
        await node.controller.alter_partition(leader, epoch_of(node, leader), [altered(node, leader)])
        assert len(node.state().elr) == 2
        node.told.clear()
        change = Alterations(ResourceType.TOPIC, "a", [Alteration("min.insync.replicas", "1")])
        await node.controller.alter_configs([change])
        assert [type(record) for record in node.told] == [PartitionsChanged, ConfigChanged]
        assert node.state().elr == ()

    run(scene())


def test_leaders_are_elected_moved_and_rebalanced_when_asked() -> None:
    async def scene() -> None:
        node = await three(MemoryStore(), 3)
        controller = node.controller
        await controller.broker_lost(1, incarnation(1))
        await node.join(1, incarnation=UUID(int=50))
        for index in range(3):
            leader = node.state(index=index).leader
            proposal = altered(node, 1, 2, 3, index=index)
            await controller.alter_partition(leader, epoch_of(node, leader), [proposal])
        places = [
            index
            for index in range(3)
            if node.state(index=index).leader != node.state(index=index).replicas[0]
        ]
        assert len(places) == 1
        outcomes = await controller.elect_leaders(Election.PREFERRED, None)
        assert [outcome.error for outcome in outcomes] == [ErrorCode.none]
        assert node.state(index=places[0]).leader == 1
        place = TopicPartition("a", places[0])
        (moved,) = await controller.alter_reassignments([Reassignment(place, (2, 3))])
        assert moved.error is ErrorCode.none
        assert node.state(index=places[0]).replicas == (2, 3)
        await controller.rebalance()
        assert controller.list_reassignments() == []
        await controller.unregister_broker(1)
        assert list(controller.image.registered) == [2, 3]

    run(scene())


def test_a_full_queue_of_changes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        node = await Node.start(MemoryStore())
        monkeypatch.setattr(change_queue, "CHANGES_WAITING_MAX", 2)
        outcomes = await asyncio.gather(
            *(node.controller.create_topics([NewTopic(name)]) for name in ("a", "b", "c"))
        )
        assert [outcome.error for (outcome,) in outcomes] == [
            ErrorCode.none,
            ErrorCode.none,
            ErrorCode.request_timed_out,
        ]
        (again,) = await node.controller.create_topics([NewTopic("c")])
        assert again.error is ErrorCode.none

    run(scene())


def test_a_broker_that_follows_the_deltas_has_the_controllers_image() -> None:
    async def scene() -> None:
        tree = Tree()
        node = await three(MemoryStore(tree), 3)
        follower = image_from(node.controller.snapshot())
        await node.controller.create_topics([NewTopic("b", 600, 2)])
        await node.controller.broker_lost(2, incarnation(2))
        for delta in node.controller.deltas.since(follower.position) or ():
            follower.apply_delta(delta)
        assert snapshot_of(follower) == node.controller.snapshot()
        after = Node(await PersistentImage.take_over(MemoryStore(tree), SimRandom(5), 3, warm=follower))
        deltas = after.controller.deltas.since(follower.position)
        assert deltas is not None and len(deltas) == 1
        follower.apply_delta(deltas[0])
        assert snapshot_of(follower) == after.controller.snapshot()

    run(scene())
