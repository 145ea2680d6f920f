"""What /metrics and /health say of a cluster that has lost brokers."""

from __future__ import annotations

import json
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.broker.metrics.text import exposition
from moldau.broker.node import Broker
from moldau.runtime.line import whole
from moldau.sim.world import World

from .trio import LAG_MS, TOPIC, Trio


def metrics(broker: Broker) -> dict[str, float]:
    lines = whole(exposition(broker.exposed.samples())).splitlines()
    return {
        name.removeprefix("moldau_"): float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def health(broker: Broker) -> tuple[str, Any]:
    status, _, body = broker._http._answer_health("/health")
    return status, json.loads(body)


def test_a_whole_cluster_has_nothing_to_complain_of() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3), (2, 3, 1), configs={"min.insync.replicas": "2"})
        await trio.produce(1)
        told = metrics(trio.brokers[1])
        expected = {
            "partitions": 2,
            "partitions_led": 1,
            "partitions_under_replicated": 0,
            "partitions_under_min_isr": 0,
            "partitions_without_leader": 0,
            'follower_lag_messages{follower="2"}': 0,
            "leader_elections_total": 1,
            "unclean_leader_elections_total": 0,
            "writes_waiting": 0,
            "brokers": 3,
        }
        assert {name: told[name] for name in expected} == expected
        assert metrics(trio.brokers[2])["replicated_bytes_total"] > 0
        controllers = [metrics(broker)["active_controller"] for broker in trio.brokers.values()]
        assert sorted(controllers) == [0, 0, 1]
        for broker in trio.brokers.values():
            status, document = health(broker)
            assert (status, document["status"], document["problems"]) == ("200 OK", "ok", [])

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_what_a_dead_broker_leaves_behind_is_told_and_takes_nobody_else_out_of_service() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2, 3)
        await trio.create((1, 2, 3), (1, 2, 3), configs={"min.insync.replicas": "3"})
        await trio.create((3,), topic="lonely")
        await trio.create((1, 2), topic="whole", configs={"min.insync.replicas": "3"})
        trio.kill(3)
        await trio.until(lambda: trio.state(topic="lonely").leader == -1, "it is fenced")
        await trio.until(lambda: trio.partition(1).state.isr == (1, 2), "the leader knows")
        told = metrics(trio.brokers[1])
        expected = {
            "partitions_led": 3,
            "partitions_under_replicated": 2,
            "partitions_under_min_isr": 2,  # of two replicas two are enough
            "partitions_without_leader": 0,  # the one is not held here
            "active_controller": 1,
            "controller_fenced_brokers": 1,
            "controller_offline_partitions": 1,
            "brokers": 2,
        }
        assert {name: told[name] for name in expected} == expected
        assert "controller_offline_partitions" not in metrics(trio.brokers[2])
        status, document = health(trio.brokers[1])
        assert (status, document["status"]) == ("200 OK", "degraded")
        assert document["under_min_isr"] == document["under_replicated"] == 2
        assert any(f"{TOPIC}-0" in problem for problem in document["problems"])
        assert (await trio.produce(1)).error_code == ErrorCode.not_enough_replicas

    with World(2) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_slow_follower_lags_leaves_the_in_sync_set_and_comes_back() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2, 3)
        await trio.create((1, 3))
        trio.cut(1, 3)
        for _ in range(4):
            await trio.produce(1, acks=1)
        waiting = world.loop.create_task(trio.produce(1))
        await world.sleep(0.1)
        told = metrics(trio.brokers[1])
        assert told['follower_lag_messages{follower="3"}'] == 5
        assert told['follower_lag_messages_max{follower="3"}'] == 5
        assert told["writes_waiting"] == 1
        await world.sleep(3 * LAG_MS / 1000)
        told = metrics(trio.brokers[1])
        assert (told["in_sync_shrinks_total"], told["partitions_under_replicated"]) == (1, 1)
        assert (await waiting).error_code == ErrorCode.none
        trio.heal()
        await trio.until(lambda: 3 in trio.partition(1).state.isr, "it is in sync again")
        told = metrics(trio.brokers[1])
        assert told["in_sync_growths_total"] == 1
        assert told["partitions_under_replicated"] == told['follower_lag_messages{follower="3"}'] == 0

    with World(3) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_settings_of_a_broker_are_told_by_itself_only() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        resources = [{"resource_type": 4, "resource_name": "2", "configuration_keys": None}]
        for node_id, error in ((2, ErrorCode.none), (1, ErrorCode.invalid_request)):
            answer = await trio.ask(node_id, "DescribeConfigs", 4, resources=resources)
            assert answer.results[0].error_code == error

    with World(4) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
