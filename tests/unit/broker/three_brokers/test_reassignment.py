"""Reassignments on three brokers (KIP-455), while clients write and brokers die: nothing is lost, and each comes to an
end, or can be cancelled. R6."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.metadata.image import PartitionState

from .moves import MB, fill, move, moved, play, throttle
from .trio import IDS, TOPIC, Trio

PLACE = TopicPartition(TOPIC, 0)


async def write(trio: Trio, count: int = 3) -> None:
    """With acks=all, to whoever leads."""
    for _ in range(count):
        error = ErrorCode.not_leader_or_follower
        while error == ErrorCode.not_leader_or_follower:  # it has moved meanwhile
            await trio.until(lambda: is_led(trio), "a leader")
            error = (await trio.produce(trio.state().leader)).error_code
        assert error == ErrorCode.none


def is_led(trio: Trio) -> bool:
    leader = trio.state().leader
    return leader in trio.brokers and PLACE in trio.brokers[leader].partitions and led(trio, leader)


def led(trio: Trio, node_id: int) -> bool:
    return trio.partition(node_id).leader is not None


def holders(trio: Trio) -> list[int]:
    """Who has files of the partition."""
    return [node_id for node_id in sorted(trio.brokers) if PLACE in trio.brokers[node_id].log_manager.logs]


async def settled(trio: Trio, *replicas: int, next_offset: int) -> None:
    """The replicas are these, and all of them have everything; nobody else has."""
    await moved(trio)
    await trio.until(lambda: holders(trio) == sorted(replicas), "the others to let go")
    await trio.until(
        lambda: len({trio.partition(node_id).log.next_offset for node_id in replicas}) == 1,
        "all replicas to have the same",
    )
    assert trio.partition(replicas[0]).log.next_offset >= next_offset
    state = trio.state()
    assert (state.replicas, set(state.isr), state.adding, state.removing) == (replicas, set(replicas), (), ())


async def listed(trio: Trio, node_id: int = 1) -> Any:
    answer = await trio.ask(node_id, "ListPartitionReassignments", 0, topics=None, timeout=10_000)
    return [
        (tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas))
        for topic in answer.topics
        for one in topic.partitions
    ]


async def cancel(trio: Trio, node_id: int = 1) -> Any:
    wanted = [{"partition_index": 0, "replicas": None}]
    topics = [{"name": TOPIC, "partitions": wanted}]
    answer = await trio.ask(node_id, "AlterPartitionReassignments", 0, topics=topics, timeout=10_000)
    return answer.responses[0].partitions[0].error_code


async def halfway(trio: Trio, *replicas: int, before: tuple[int, ...] = (1, 2)) -> None:
    """A move that has begun to copy, and does not come to its end by itself."""
    await trio.start()
    await trio.create(before)
    await fill(trio, 4 * MB)
    await throttle(trio, ("leader", "follower"), 1, "*")
    await move(trio, *replicas)
    (target,) = set(replicas) - set(before)
    await trio.until(lambda: PLACE in trio.brokers[target].partitions, "the move to begin")
    await trio.until(lambda: trio.partition(target).log.size_bytes() > 0, "the first answer")
    assert trio.partition(target).log.size_bytes() < 3 * MB


async def go_on(trio: Trio) -> None:
    """Not throttled any more."""
    await throttle(trio, ("leader", "follower"), None, None)


def test_a_topic_gets_more_copies_and_then_fewer() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        await write(trio)
        await move(trio, 1, 2, 3)
        await write(trio)
        await settled(trio, 1, 2, 3, next_offset=6)
        await move(trio, 2)
        await moved(trio)
        await write(trio)
        await settled(trio, 2, next_offset=9)
        assert trio.state().leader == 2

    play(scene)


def test_all_replicas_are_replaced_while_clients_write() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        await fill(trio, 3 * MB)
        await move(trio, 3, 2)
        await write(trio, 20)
        await settled(trio, 3, 2, next_offset=12 + 20)

    play(scene)


def test_who_is_added_and_who_leaves_is_told_everywhere() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        for node_id in IDS:  # any broker is asked: the controller knows
            assert await listed(trio, node_id) == [((2, 3, 1), (3,), (1,))]
            answer = await trio.ask(node_id, "Metadata", 12, topics=None, allow_auto_topic_creation=False)
            (partition,) = answer.topics[0].partitions
            assert list(partition.replica_nodes) == [2, 3, 1], "as Kafka's: those who leave are the last"
            assert sorted(partition.isr_nodes) == [1, 2]
        topics = [{"name": TOPIC}]
        answer = await trio.ask(1, "DescribeTopicPartitions", 0, topics=topics, response_partition_limit=10)
        assert list(answer.topics[0].partitions[0].replica_nodes) == [2, 3, 1]
        await go_on(trio)
        await moved(trio)
        assert await listed(trio) == []

    play(scene)


def test_cancelled_halfway_it_is_as_it_was_and_may_begin_anew() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        assert await cancel(trio) == ErrorCode.none
        await settled(trio, 2, 1, next_offset=16)  # as Kafka's: who was to leave comes last
        assert await cancel(trio) == ErrorCode.no_reassignment_in_progress
        await write(trio)
        await go_on(trio)
        await move(trio, 2, 3)
        await settled(trio, 2, 3, next_offset=19)

    play(scene)


@pytest.mark.parametrize("victim", [1, 2, 3], ids=["the leader", "who stays", "who comes"])
def test_a_broker_that_dies_in_the_middle_only_delays_it(victim: int) -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        await write(trio)
        trio.kill(victim)
        asked = next(node_id for node_id in IDS if node_id != victim)
        await write(trio)
        await trio.until(lambda: victim not in trio.state().isr, "the set to shrink")
        assert len(await listed(trio, asked)) == 1, "it goes on"
        await trio.start(victim)
        await go_on(trio)
        await settled(trio, 2, 3, next_offset=22)
        await write(trio)

    play(scene)


def test_another_controller_takes_a_move_to_its_end() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(3)
        await trio.start(1, 2)  # 3 is the controller
        await trio.create((1,))
        await fill(trio, 4 * MB)
        await throttle(trio, ("leader", "follower"), 1, "*")
        await move(trio, 2)
        await trio.until(lambda: PLACE in trio.brokers[2].partitions, "the move to begin")
        await trio.until(lambda: trio.partition(2).log.size_bytes() > 0, "the first answer")
        trio.kill(3)
        await trio.until(lambda: trio.state().leader == 1, "another controller")
        assert await listed(trio) == [((2, 1), (2,), (1,))]
        for node_id in (1, 2):
            broker = trio.brokers[node_id]
            assert broker.replication.leader_throttle.limit == 1, "and the throttle holds"
        await write(trio)
        await go_on(trio)
        await settled(trio, 2, next_offset=19)

    play(scene)


def test_a_target_that_cannot_be_filled_keeps_nobody_from_writing_and_is_given_up() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 2))
        await fill(trio, MB)
        trio.cut(1, 3)
        await move(trio, 2, 3)
        for _ in range(5):
            await write(trio)
            await trio.world.sleep(1.0)
        assert await listed(trio, 2) == [((2, 3, 1), (3,), (1,))]
        assert set(trio.state().isr) == {1, 2}
        assert await cancel(trio, 2) == ErrorCode.none
        trio.heal()
        await settled(trio, 2, 1, next_offset=4 + 15)

    play(scene)


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        topics = [{"name": TOPIC, "topic_id": None}]
        answer = await trio.ask(1, "DeleteTopics", 6, topics=topics, timeout=10_000)
        assert answer.responses[0].error_code == ErrorCode.none
        await trio.until(lambda: holders(trio) == [], "all logs to be deleted")
        assert await listed(trio) == []
        throttles = [
            each
            for broker in trio.brokers.values()
            for each in (broker.replication.leader_throttle, broker.replication.follower_throttle)
        ]
        await trio.until(lambda: not any(each.waiting for each in throttles), "nobody to wait for room")
        await trio.create((1, 2))
        await write(trio)
        assert trio.partition(1).log.next_offset == 3

    play(scene)


def test_partitions_are_added_meanwhile() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        topics = [{"name": TOPIC, "count": 3, "assignments": None}]
        answer = await trio.ask(1, "CreatePartitions", 3, topics=topics, timeout=10_000, validate_only=False)
        assert answer.results[0].error_code == ErrorCode.none
        await trio.until(lambda: len(trio_topic(trio)) == 3, "the partitions")
        assert {len(state.replicas) for state in trio_topic(trio)[1:]} == {3}, "as in Kafka"
        assert await listed(trio) == [((2, 3, 1), (3,), (1,))]
        await go_on(trio)
        await settled(trio, 2, 3, next_offset=16)

    play(scene)


def trio_topic(trio: Trio) -> tuple[PartitionState, ...]:
    return trio.brokers[1].image.topics[TOPIC].partitions


def test_fewer_copies_than_min_insync_replicas_asks_for_are_enough() -> None:
    """As with Kafka's `effectiveMinIsr`: no more is asked for than there are."""

    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3), configs={"min.insync.replicas": "2"})
        await write(trio)
        await move(trio, 3)
        await moved(trio)
        await write(trio)
        await settled(trio, 3, next_offset=6)

    play(scene)


def test_a_move_that_another_takes_the_place_of_ends_where_the_last_one_says() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 2, 3)
        await move(trio, 1)
        await settled(trio, 1, next_offset=16)
        await write(trio)

    play(scene)


def test_who_comes_leads_when_it_is_the_only_one_who_stays() -> None:
    async def scene(trio: Trio) -> None:
        await halfway(trio, 3, before=(1,))
        await write(trio)
        await go_on(trio)
        await settled(trio, 3, next_offset=19)
        assert trio.state().leader == 3
        await write(trio)

    play(scene)
