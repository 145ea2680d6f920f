"""Client quotas on three brokers: set by any of them, in force on each for itself, and beside throttled replicas."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode

from .moves import MB, copied, fill, move, moved, play, throttle
from .trio import TOPIC, Trio, batch

OTHER = "other"


async def set_quota(trio: Trio, node_id: int, entity: dict[str, str | None], **values: float | None) -> None:
    parts = [{"entity_type": type_, "entity_name": name} for type_, name in entity.items()]
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    entries = [{"entity": parts, "ops": ops}]
    answer = await trio.ask(node_id, "AlterClientQuotas", 1, entries=entries, validate_only=False)
    assert [one.error_code for one in answer.entries] == [ErrorCode.none]


def controller_of(trio: Trio) -> int:
    return next(node_id for node_id, broker in trio.brokers.items() if broker.active_controller is not None)


def test_a_quota_set_at_one_broker_holds_on_all_for_each_by_itself() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        for index, name in enumerate((TOPIC, "two", "three"), 1):
            await trio.create((index,), topic=name)
        asked = next(node_id for node_id in trio.brokers if node_id != controller_of(trio))
        await set_quota(trio, asked, {"client-id": "client"}, producer_byte_rate=1000)
        assert all(broker.throttling is not None for broker in trio.brokers.values())
        for node_id, topic in zip((1, 2, 3), (TOPIC, "two", "three"), strict=True):
            for size, is_over in ((8_000, False), (8_000, True)):
                data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(bytes(size))}]}]
                answer = await trio.ask(node_id, "Produce", 9, acks=-1, timeout=30_000, topic_data=data)
                assert (answer.throttle_time.total_seconds() > 0) is is_over, (node_id, size)
            listed = await trio.ask(node_id, "DescribeClientQuotas", 1, components=[], strict=False)
            assert [(value.key, value.value) for value in listed.entries[0].values] == [
                ("producer_byte_rate", 1000.0)
            ]
        await set_quota(trio, asked, {"client-id": "client"}, producer_byte_rate=None)
        assert all(broker.throttling is None for broker in trio.brokers.values())

    play(scene)


def test_who_changes_the_cluster_through_another_broker_is_muted_there() -> None:
    """KIP-599: the controller says how long, and the broker that forwards does not hear its client."""

    async def scene(trio: Trio) -> None:
        await trio.start()
        asked = next(node_id for node_id in trio.brokers if node_id != controller_of(trio))
        await set_quota(trio, asked, {"user": "ANONYMOUS"}, controller_mutation_rate=1)

        async def create(name: str, partitions: int) -> Any:
            topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1}]
            return await trio.ask(
                asked, "CreateTopics", 7, topics=topics, timeout=30_000, validate_only=False
            )

        answer = await create(TOPIC, 31)
        assert (answer.topics[0].error_code, answer.throttle_time.total_seconds()) == (ErrorCode.none, 0)
        answer = await create(OTHER, 1)
        wait_s = answer.throttle_time.total_seconds()
        assert answer.topics[0].error_code is ErrorCode.throttling_quota_exceeded and 15 < wait_s <= 20
        start_s = trio.world.loop.time()
        answer = await create(OTHER, 1)
        assert answer.topics[0].error_code is ErrorCode.none
        assert trio.world.loop.time() - start_s >= wait_s
        assert trio.brokers[asked].metrics.throttled == {"controller_mutation": 1}

    play(scene)


def test_followers_are_not_held_up_by_the_quotas_of_users() -> None:
    """Without authentication brokers are ANONYMOUS as well: their fetches are exempt all the same."""

    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3))
        await set_quota(trio, 1, {"user": None}, consumer_byte_rate=1000, request_percentage=0.01)
        await fill(trio, 5 * MB)
        assert set(trio.state().isr) == {1, 2, 3}
        assert "fetch" not in trio.brokers[1].metrics.throttled

    play(scene)


def test_a_throttled_move_goes_on_beside_client_quotas() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2))
        await fill(trio, 30 * MB)
        await set_quota(trio, 1, {"user": None}, consumer_byte_rate=1000)
        await throttle(trio, ("leader",), 5 * MB)
        began_s = trio.world.loop.time()
        await move(trio, 2, 3)
        await trio.world.sleep(1.0)
        assert copied(trio) < 20 * MB
        await moved(trio)
        assert 3 < trio.world.loop.time() - began_s < 12

    play(scene)
