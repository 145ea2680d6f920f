"""Throttled replication (KIP-73): a partition that moves to a third broker, in the world's own time."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.metadata.records import ResourceType

from .moves import (
    APPEND,
    LISTS,
    MB,
    RATES,
    SET,
    SUBTRACT,
    configure,
    copied,
    fill,
    move,
    moved,
    play,
    throttle,
)
from .test_standing import metrics
from .trio import TOPIC, Trio, batch

OTHER = "other"


async def begin(trio: Trio, megabytes: int) -> None:
    await trio.start()
    await trio.create((1, 2))
    await trio.create((1, 2, 3), topic=OTHER)
    await fill(trio, megabytes * MB)


def fetches(trio: Trio, node_id: int) -> int:
    return trio.brokers[node_id].metrics.requests.get("Fetch", 0)


@pytest.mark.parametrize("sides", [("leader",), ("follower",), ("leader", "follower")])
def test_a_throttled_move_takes_as_long_as_its_rate_says(sides: tuple[str, ...]) -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 30)
        await throttle(trio, sides, 5 * MB)
        began_s = trio.world.loop.time()
        await move(trio, 2, 3)
        await trio.world.sleep(4.0)
        for side, broker in (("leader", trio.brokers[1]), ("follower", trio.brokers[3])):
            rate = metrics(broker)[f'replication_throttled_bytes_per_second{{side="{side}"}}']
            assert 4 * MB < rate < 6 * MB if side in sides else rate == 0
        await moved(trio)
        assert 5.0 <= trio.world.loop.time() - began_s <= 6.8
        assert trio.partition(3).log.size_bytes() == trio.partition(2).log.size_bytes()

    play(scene)


def test_what_is_not_named_is_copied_as_fast_as_it_goes() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 10)
        await throttle(trio, ("leader", "follower"), MB, "7:1,7:3,0:9,99999:1")
        began_s = trio.world.loop.time()
        await move(trio, 2, 3)
        await moved(trio)
        assert trio.world.loop.time() - began_s < 1.0

    play(scene)


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("rate", [0, 1])
def test_a_throttle_to_nothing_holds_back_nobody_else(side: str, rate: int) -> None:
    """Of the throttled partition either: its in-sync replicas go on at once."""

    async def scene(trio: Trio) -> None:
        await begin(trio, 10)
        await throttle(trio, (side,), rate)
        await move(trio, 1, 2, 3)
        await trio.until(lambda: copied(trio) > 0, "the first answer")
        for topic in (TOPIC, OTHER) * 5:
            began_s = trio.world.loop.time()
            data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(bytes(1000))}]}]
            answer = await trio.ask(1, "Produce", 12, acks=-1, timeout=30_000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none
            assert trio.world.loop.time() - began_s < 0.05, f"acks=all to {topic}"
        assert trio.state().isr == (1, 2)
        assert copied(trio) < 6 * MB

    play(scene)


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("what", ["the rate", "the list"])
def test_a_throttle_that_is_taken_away_is_gone_at_once(side: str, what: str) -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 10)
        await throttle(trio, (side,), 1)
        await move(trio, 2, 3)
        await trio.world.sleep(3.0)
        assert 0 < copied(trio) < 6 * MB
        if what == "the rate":
            for node_id in trio.brokers:
                await configure(trio, ResourceType.BROKER, str(node_id), {RATES[side]: None})
        else:
            await configure(trio, ResourceType.TOPIC, TOPIC, {LISTS[side]: None})
        began_s = trio.world.loop.time()
        await moved(trio)
        assert trio.world.loop.time() - began_s < 1.0

    play(scene)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_another_rate_counts_at_once(side: str) -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 20)
        await throttle(trio, (side,), 10_000)
        await move(trio, 2, 3)
        await trio.world.sleep(2.0)
        assert copied(trio) <= 2 * MB
        await throttle(trio, (side,), 10 * MB)
        began_s = trio.world.loop.time()
        await moved(trio)
        assert trio.world.loop.time() - began_s < 2.5

    play(scene)


@pytest.mark.parametrize("sides", [("leader",), ("follower",), ("leader", "follower")])
def test_who_is_held_back_waits_and_does_not_ask_over_and_over(sides: tuple[str, ...]) -> None:
    """Nor does what is produced to the throttled partition end its waits."""

    async def scene(trio: Trio) -> None:
        await begin(trio, 10)
        await throttle(trio, sides, 1)
        await move(trio, 1, 2, 3)
        await trio.until(lambda: copied(trio) > 0, "the first answer")
        await trio.world.sleep(1.0)
        before = fetches(trio, 1)
        for _ in range(100):
            await fill(trio, 1000, step_bytes=1000)
            await trio.world.sleep(0.04)
        assert trio.world.loop.time() > 4.0
        in_sync = 100 * 2 + 20  # broker 2: the record, then that it is committed; and its long polls
        assert fetches(trio, 1) - before < in_sync + 40
        waiting = [
            getattr(broker.replication, f"{side}_throttle").waiting
            for broker in trio.brokers.values()
            for side in sides
        ]
        assert sum(waiting) >= 1
        await throttle(trio, sides, None, None)
        await moved(trio)

    play(scene)


def test_throttled_partitions_get_their_turns() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2), (1, 2), (1, 2), (1, 2))
        for index in range(4):
            await fill(trio, 5 * MB, index)
        await throttle(trio, ("leader", "follower"), 2 * MB, "*")
        for index in range(4):
            await move(trio, 1, 2, 3, index=index)
        await trio.world.sleep(5.0)
        sizes = [trio.partition(3, index).log.size_bytes() for index in range(4)]
        assert 8 * MB <= sum(sizes) <= 14 * MB
        assert min(sizes) >= MB
        for index in range(4):
            await moved(trio, index)

    play(scene)


def test_a_throttled_replica_that_has_caught_up_is_in_sync_and_stays_so() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 3)
        await throttle(trio, ("leader", "follower"), MB, "*")
        await move(trio, 1, 2, 3)
        await trio.until(lambda: set(trio.state().isr) == {1, 2, 3}, "the third to be in sync")
        began_s = trio.world.loop.time()
        await fill(trio, 6 * MB)
        assert trio.world.loop.time() - began_s < 1.0
        await trio.world.sleep(5.0)
        assert set(trio.state().isr) == {1, 2, 3}

    play(scene)


def test_a_broker_that_starts_anew_is_throttled_as_before() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 10)
        await throttle(trio, ("follower",), MB)
        await move(trio, 1, 2, 3)
        await trio.until(lambda: copied(trio) > 0, "the first answer")
        trio.kill(3)
        await trio.world.sleep(1.0)
        await trio.start(3)
        before, began_s = copied(trio), trio.world.loop.time()
        await trio.world.sleep(4.0)
        assert copied(trio) - before <= MB * (trio.world.loop.time() - began_s) + 1.5 * MB
        await moved(trio)

    play(scene)


@pytest.mark.parametrize("value", ["-1", "", "1.5", "9223372036854775808"])
def test_a_rate_that_is_none_is_refused(value: str) -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        error, message = await configure(trio, ResourceType.BROKER, "1", {RATES["leader"]: value})
        assert error == ErrorCode.invalid_request
        assert message.startswith(f"Invalid value {value} for configuration {RATES['leader']}: ")

    play(scene)


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
def test_a_list_that_is_too_long_is_refused_and_the_longest_one_taken(operation: int) -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1)
        long = ",".join(f"{number}:1" for number in range(150_000))
        assert len(long) > MB
        error, message = await configure(
            trio, ResourceType.TOPIC, TOPIC, {LISTS["leader"]: long}, operation=operation
        )
        assert error == ErrorCode.invalid_config
        assert len(message) < 200
        most = ",".join(f"{number}:{broker}" for number in range(10_000) for broker in (1, 2, 3))
        for _ in range(2):  # to none, then to as many
            error, _message = await configure(
                trio, ResourceType.TOPIC, TOPIC, {LISTS["leader"]: most}, operation=operation
            )
            assert error == ErrorCode.none
        if operation != SUBTRACT:
            await trio.until(lambda: trio.partition(1).is_throttled_as_leader, "the list to be in force")

    play(scene)


def test_rates_are_described_where_they_are_set_and_with_their_sources() -> None:
    """As Kafka's: a rate has no default to be told."""

    async def told(trio: Trio) -> dict[str, tuple[str, int, bool]]:
        keys = [*RATES.values(), "replication.quota.window.num"]
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": keys}
        answer = await trio.ask(1, "DescribeConfigs", 4, resources=[resource])
        return {one.name: (one.value, one.config_source, one.read_only) for one in answer.results[0].configs}

    async def scene(trio: Trio) -> None:
        await trio.start()
        window = {"replication.quota.window.num": ("11", 5, True)}
        assert await told(trio) == window
        await configure(trio, ResourceType.BROKER, "", {RATES["leader"]: "123"})
        await configure(trio, ResourceType.BROKER, "1", {RATES["follower"]: " 7 "})
        throttles = trio.brokers[1].replication
        await trio.until(lambda: throttles.follower_throttle.limit == 7, "the rate to be in force")
        assert throttles.leader_throttle.limit == 123
        rates = {RATES["leader"]: ("123", 3, False), RATES["follower"]: (" 7 ", 2, False)}
        assert await told(trio) == rates | window

    play(scene)
