"""DescribeProducers of a partition with three replicas: each tells of the producers that its own log knows."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.records.record import Record, build_batch
from moldau.sim.world import World

from .trio import TOPIC, Trio

PRODUCER_ID, EPOCH = 7, 2


async def producers(trio: Trio, node_id: int) -> tuple[ErrorCode, list[tuple[int, int, int]]]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    answer = await trio.ask(node_id, "DescribeProducers", 0, topics=topics)
    (partition,) = answer.topics[0].partitions
    found = partition.active_producers
    return partition.error_code, [(one.producer_id, one.producer_epoch, one.last_sequence) for one in found]


def test_every_replica_tells_of_producers_and_who_has_none_refuses() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2))
        batch = build_batch(
            [Record(0, 1_000, None, b"value")], producer_id=PRODUCER_ID, producer_epoch=EPOCH, base_sequence=0
        )
        partitions = [{"index": 0, "records": batch}]
        topics = [{"name": TOPIC, "partition_data": partitions}]
        await trio.ask(1, "Produce", 12, acks=-1, timeout=30_000, topic_data=topics)
        await trio.until(lambda: trio.partition(2).high_watermark == 1, "committed")
        for node_id in (1, 2):
            assert await producers(trio, node_id) == (ErrorCode.none, [(PRODUCER_ID, EPOCH, 0)])
        assert await producers(trio, 3) == (ErrorCode.not_leader_or_follower, [])

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
