"""DeleteRecords over all replicas (KIP-107)."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.controller.reassignments import Reassignment
from moldau.sim.world import World

from .trio import TOPIC, Trio

HIGH_WATERMARK = -1


async def delete(trio: Trio, node_id: int, offset: int, timeout_ms: int = 20_000) -> Any:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = await trio.ask(node_id, "DeleteRecords", 2, topics=topics, timeout=timeout_ms)
    return answer.topics[0].partitions[0]


async def begin(trio: Trio) -> None:
    await trio.start(2)
    await trio.start(1, 3)
    await trio.create((1, 2, 3))
    for _ in range(5):
        await trio.produce(1)


def starts(trio: Trio) -> list[int]:
    return [trio.partition(node_id).log.log_start_offset for node_id in trio.brokers]


def test_when_the_answer_is_there_all_replicas_begin_at_the_offset() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio)
        began_s = world.loop.time()
        answer = await delete(trio, 1, 3)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 3)
        assert starts(trio) == [3, 3, 3]
        assert world.loop.time() - began_s < 0.1  # followers that wait for data hear of it at once
        answer = await delete(trio, 1, HIGH_WATERMARK)
        assert (answer.low_watermark, starts(trio)) == (5, [5, 5, 5])
        assert (await delete(trio, 1, 6)).error_code == ErrorCode.offset_out_of_range

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_only_the_leader_deletes_records() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio)
        assert (await delete(trio, 2, 3)).error_code == ErrorCode.not_leader_or_follower
        assert starts(trio) == [0, 0, 0]

    with World(2) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_replica_that_cannot_be_reached_is_waited_for_and_follows_later() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio)
        trio.cut(1, 3)
        answer = await delete(trio, 1, 3, timeout_ms=500)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.request_timed_out, 0)
        assert starts(trio)[:2] == [3, 3]
        assert trio.partition(3).log.log_start_offset == 0
        trio.heal()
        assert (await delete(trio, 1, 3)).low_watermark == 3
        assert starts(trio) == [3, 3, 3]

    with World(3) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_dead_replica_does_not_count() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio)
        trio.kill(3)
        answer = await delete(trio, 1, 4)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 4)
        await trio.start(3)
        await trio.until(lambda: trio.partition(3).log.log_start_offset == 4, "it follows")

    with World(4) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_leader_that_is_replaced_while_it_waits_says_so() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio)
        trio.cut(1, 3)
        waiting = world.loop.create_task(delete(trio, 1, 3))
        await world.sleep(0.2)
        partition = trio.partition(1)
        partition.change(partition.state._replace(leader=2, leader_epoch=partition.leader_epoch + 1))
        assert (await waiting).error_code == ErrorCode.not_leader_or_follower

    with World(5) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_replica_that_is_added_begins_where_the_leader_does() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 2))
        for _ in range(5):
            await trio.produce(1)
        assert (await delete(trio, 1, 3)).error_code == ErrorCode.none
        controller = trio.brokers[2]
        move = Reassignment(TopicPartition(TOPIC, 0), (1, 3))
        await controller.tasks.spawn(controller.controller.alter_reassignments([move]), name="move")
        await trio.until(lambda: trio.state().replicas == (1, 3), "the replica to have moved")
        log = trio.partition(3).log
        assert (log.log_start_offset, log.next_offset) == (3, 5)

    with World(3) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
