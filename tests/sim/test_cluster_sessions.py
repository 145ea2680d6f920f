"""Brokers of a simulated cluster that lose their sessions at awkward moments, and come back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from moldau.sim.drive import DiskFaults
from moldau.sim.stage import Stage
from moldau.sim.workloads.cluster.replicas import why_not_settled
from moldau.sim.workloads.cluster.workload import BROKER_SETTINGS
from moldau.sim.world import World

AGAIN_AFTER_S = [0.02 * number for number in range(1, 16)]
"""From before the next session has begun to after its registration."""


def in_cluster(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Three brokers that have settled, and nothing that fails by itself."""
    with World("sessions") as world:
        stage = Stage(
            world,
            {},
            disk=DiskFaults(),
            disk_delay_s=(0.0001, 0.001),
            settings=BROKER_SETTINGS,
            brokers=3,
        )

        async def play() -> None:
            assert stage.store is not None
            stage.store.start()
            for node in stage.nodes:
                node.start()
            await settled(stage)
            await scene(stage)

        world.run(play())
        assert not world.failures and not stage.model.violations


async def settled(stage: Stage) -> None:
    assert await stage.until(lambda: why_not_settled(stage.nodes) is None), why_not_settled(stage.nodes)


def test_a_broker_that_loses_its_session_again_while_it_registers_comes_back() -> None:
    async def scene(stage: Stage) -> None:
        assert stage.store is not None
        for again_after_s in AGAIN_AFTER_S:
            for node in stage.nodes:
                live = f"/brokers/live/{node.node_id}"
                assert stage.store.expire(live)
                await stage.world.sleep(again_after_s)
                stage.store.expire(live)
                await settled(stage)

    in_cluster(scene)


def test_a_broker_that_is_stopped_for_longer_than_its_session_is_fenced_and_comes_back() -> None:
    async def scene(stage: Stage) -> None:
        for node in stage.nodes:
            node.host.pause()
            others = [other for other in stage.nodes if other is not node]

            def is_fenced(node_id: int = node.node_id, others: Any = others) -> bool:
                return all(
                    other.broker is not None and other.broker.image.registered[node_id].is_fenced
                    for other in others
                )

            assert await stage.until(is_fenced)
            node.host.go_on()
            await settled(stage)

    in_cluster(scene)
