"""A client that asks the wrong broker learns from the answer who leads, and where (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.sim.world import World

from .trio import PORT, TOPIC, Trio, batch

NO_HINT = (-1, -1)
RACKS = {1: "north", 2: "south", 3: "west"}


def hint(partition: Any) -> tuple[int, int]:
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


def endpoints(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints]


async def begin(trio: Trio) -> tuple[int, int]:
    await trio.start()
    await trio.create((1, 2))
    return 1, trio.state().leader_epoch


def racks(node_id: int) -> dict[str, str]:
    return {"broker.rack": RACKS[node_id]}


def test_a_fetch_from_the_wrong_broker_is_told_the_leader_at_once() -> None:
    async def scene(trio: Trio) -> None:
        leader = await begin(trio)
        began_s = world.loop.time()
        answer = await trio.fetch(3, 0, version=17, max_wait=5_000, min_bytes=1)
        assert world.loop.time() - began_s < 1
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.not_leader_or_follower
        assert hint(partition) == leader
        assert endpoints(answer) == [(1, "broker-1", PORT, "north")]
        before = await trio.fetch(3, 0, version=15, max_wait=5_000, min_bytes=1)
        assert before.responses[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
        assert not hasattr(before, "node_endpoints")

    with World(1) as world:
        world.run(scene(Trio(world, racks)))
        assert not world.failures


def test_a_fetch_with_an_old_epoch_is_told_the_current_one() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 2))
        trio.kill(1)
        await trio.until(lambda: trio.partition(2).leader is not None, "another leader")
        epoch = trio.state().leader_epoch
        answer = await trio.fetch(2, 0, version=17, current_leader_epoch=epoch - 1)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.fenced_leader_epoch
        assert hint(partition) == (2, epoch)
        assert [endpoint[0] for endpoint in endpoints(answer)] == [2]

    with World(2) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


@pytest.mark.parametrize("asked", [2, 3], ids=["a follower", "one that does not hold it"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone in its request", "with another partition"])
def test_a_produce_to_the_wrong_broker_is_told_the_leader(asked: int, others: int) -> None:
    async def scene(trio: Trio) -> None:
        leader = await begin(trio)
        data = [{"index": index, "records": batch(b"value")} for index in range(1 + others)]
        for version in (9, 10, 12):
            topics = [{"name": TOPIC, "partition_data": data}]
            answer = await trio.ask(asked, "Produce", version, acks=-1, timeout=1_000, topic_data=topics)
            first, *more = answer.responses[0].partition_responses
            assert first.error_code == ErrorCode.not_leader_or_follower
            assert [p.error_code for p in more] == [ErrorCode.unknown_topic_or_partition] * others
            if version >= 10:
                assert hint(first) == leader
                assert [hint(p) for p in more] == [NO_HINT] * others
                assert endpoints(answer) == [(1, "broker-1", PORT, "north")]

    with World(3) as world:
        world.run(scene(Trio(world, racks)))
        assert not world.failures


def test_a_write_whose_leader_is_replaced_before_it_is_committed_is_told_the_new_one() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 3))
        trio.cut(1, 3)
        writing = world.loop.create_task(trio.produce(1))
        await trio.until(lambda: trio.brokers[1].replication.writes_waiting > 0, "it waits")
        controller = trio.brokers[2]
        topic = controller.controller.image.topics[TOPIC]
        state = topic.partitions[0]
        partition = trio.partition(1)
        partition.change(state._replace(leader=3, leader_epoch=state.leader_epoch + 1))
        answer = await writing
        assert answer.error_code == ErrorCode.not_leader_or_follower
        assert hint(answer) == (state.leader, state.leader_epoch)  # as its image has it

    with World(4) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
