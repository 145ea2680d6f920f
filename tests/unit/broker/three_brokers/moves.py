"""Partitions that move from broker to broker, throttled or not: what tests of it share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.metadata.records import ResourceType
from moldau.sim.fabric import Link
from moldau.sim.world import World

from .trio import TOPIC, Trio, batch

MB = 1_000_000
RATES = {side: f"{side}.replication.throttled.rate" for side in ("leader", "follower")}
LISTS = {side: f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
MOVES = {"leader": "0:1,0:2", "follower": "0:3"}
"""What a tool names for a move of partition 0 from 1, 2 to 3."""
SET, DELETE, APPEND, SUBTRACT = range(4)
FAST = Link(delay_s=(0.0001, 0.0005), buffer_bytes=4 * MB, partial_rate=0.0)


async def configure(
    trio: Trio, kind: ResourceType, name: str, configs: dict[str, str | None], *, operation: int = SET
) -> Any:
    """Set, or with None remove; the error and its text."""
    changes = [
        {"name": key, "config_operation": DELETE if value is None else operation, "value": value}
        for key, value in configs.items()
    ]
    resources = [{"resource_type": int(kind), "resource_name": name, "configs": changes}]
    answer = await trio.ask(1, "IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    return answer.responses[0].error_code, answer.responses[0].error_message


async def throttle(trio: Trio, sides: tuple[str, ...], rate: int | None, replicas: str | None = "") -> None:
    """The same rate for all brokers; `replicas`: those of the move, where nothing else is said."""
    for node_id in trio.brokers:
        rates = {RATES[side]: None if rate is None else str(rate) for side in sides}
        assert (await configure(trio, ResourceType.BROKER, str(node_id), rates))[0] == ErrorCode.none
    lists = {LISTS[side]: MOVES[side] if replicas == "" else replicas for side in sides}
    assert (await configure(trio, ResourceType.TOPIC, TOPIC, lists))[0] == ErrorCode.none


async def fill(trio: Trio, total_bytes: int, index: int = 0, step_bytes: int = 250_000) -> None:
    """Straight into the leader's log, which costs the test less than a producer."""
    partition = trio.partition(trio.state(index).leader, index)

    async def append() -> None:
        for _ in range(total_bytes // step_bytes):
            buffer = memoryview(bytearray(batch(bytes(step_bytes))))
            assert not partition.append(buffer, 0, len(buffer), 1).error

    await trio.brokers[trio.state(index).leader].tasks.spawn(append(), name="fill")
    await trio.until(lambda: partition.high_watermark == partition.log.next_offset, "all to be committed")


async def move(trio: Trio, *replicas: int, index: int = 0) -> None:
    wanted = [{"partition_index": index, "replicas": list(replicas)}]
    topics = [{"name": TOPIC, "partitions": wanted}]
    answer = await trio.ask(1, "AlterPartitionReassignments", 0, topics=topics, timeout=10_000)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.none


async def moved(trio: Trio, index: int = 0) -> None:
    await trio.until(lambda: not trio.state(index).adding and not trio.state(index).removing, "the move")


def copied(trio: Trio) -> int:
    return trio.partition(3).log.size_bytes() if TOPIC in trio.brokers[3].partitions_of else 0


def play(scene: Callable[[Trio], Coroutine[Any, Any, None]]) -> None:
    with World(11, link=FAST) as world:
        world.run(scene(Trio(world)))
        assert not world.failures, world.failures
