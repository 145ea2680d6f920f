"""Keys to partitions as Kafka does it, and requests to the shard that is led here."""

from __future__ import annotations

import asyncio

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.runtime import CoordinatorRuntime, partition_for
from moldau.sim.world import World

from .support import MemoryJournal, Registers, new_reply


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("gc-probe-g1", 6),  # seen in an Apache Kafka's __consumer_offsets of 50 partitions
        ("gc-probe-simple", 12),
        ("", 0),
        ("polygenelubricants", 0),  # Java's hash is the smallest integer, which has no absolute value
        ("grüße", 23),
        ("\U0001f600", 49),  # two UTF-16 units
    ],
)
def test_a_key_has_the_partition_that_kafka_gives_it(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition


def make(world: World, *, partitions: int) -> CoordinatorRuntime[Registers]:
    ports = world.host("broker").runtime
    return CoordinatorRuntime(
        "__registers",
        lambda _index: Registers(),
        ports.tasks,
        ports.clock,
        partition_count=lambda: partitions,
        write_timeout_ms=5000,
    )


def put(runtime: CoordinatorRuntime[Registers], key: str, value: str) -> object:
    return runtime.write(
        key, lambda shard, _moment, reply: shard.put(reply, key, value), lambda error: error
    ).response


def test_a_request_reaches_the_shard_of_its_key(world: World) -> None:
    runtime = make(world, partitions=2)
    journals = [MemoryJournal(), MemoryJournal()]
    for index, journal in enumerate(journals):
        runtime.lead(index, journal)
    world.run(world.sleep(0.01))

    for key in ("a", "b", "c", "d"):
        assert put(runtime, key, "1") == "stored"
    for index, journal in enumerate(journals):
        keys = [entry.key.decode() for entry in journal.entries if entry.key is not None]
        assert keys == [key for key in "abcd" if partition_for(key, 2) == index]


def test_a_key_whose_partition_is_led_elsewhere_is_refused(world: World) -> None:
    runtime = make(world, partitions=2)
    runtime.lead(partition_for("a", 2), MemoryJournal())
    world.run(world.sleep(0.01))

    assert put(runtime, "a", "1") == "stored"
    assert put(runtime, "b", "1") is ErrorCode.not_coordinator


def test_without_its_topic_there_is_no_coordinator(world: World) -> None:
    assert put(make(world, partitions=0), "a", "1") is ErrorCode.not_coordinator


def test_leading_again_begins_from_the_log(world: World) -> None:
    runtime = make(world, partitions=1)
    journal = MemoryJournal()
    runtime.lead(0, journal)
    world.run(world.sleep(0.01))
    put(runtime, "a", "1")
    waiting = runtime.write("a", lambda shard, _, reply: shard.wait(reply), lambda error: error)

    runtime.lead(0, journal)
    assert waiting.response is ErrorCode.not_coordinator
    world.run(world.sleep(0.01))
    assert runtime.read("a", lambda shard, _: dict(shard.values), lambda error: error).response == {"a": "1"}


def test_every_led_shard_can_be_read_at_once(world: World) -> None:
    runtime = make(world, partitions=3)
    for index in (0, 2):
        runtime.lead(index, MemoryJournal())
    replies = runtime.read_all(lambda shard, _: len(shard.values), lambda error: error)
    assert not any(reply.is_answered for reply in replies), "they wait for the load"

    world.run(world.sleep(0.01))
    assert [reply.response for reply in replies] == [0, 0]
    assert [r.response for r in runtime.read_all(lambda s, _: len(s.values), lambda error: error)] == [0, 0]


def test_a_reply_can_be_awaited() -> None:
    async def scenario() -> object:
        reply = new_reply()
        asyncio.get_running_loop().call_soon(reply.answer, "late")
        return await reply, await reply

    assert asyncio.run(scenario()) == ("late", "late")
