"""The simulation cuts no more power than promise 1 bears, counted from when a cut is decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.sim.drive import DiskFaults
from moldau.sim.stage import Stage
from moldau.sim.workloads.cluster.power import Power
from moldau.sim.workloads.cluster.store_view import StoreView
from moldau.sim.world import World


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(1) as world:
        yield Stage(world, {}, disk=DiskFaults(), disk_delay_s=(0.0, 0.001), brokers=3)


def power_of(stage: Stage, spared: int = 1) -> Power:
    assert stage.store is not None
    return Power(
        stage.model,
        stage.nodes,
        StoreView(stage.store),
        lambda *_: 0,
        spared=spared,
        is_promised=lambda _: True,
    )


def test_one_broker_may_lose_its_power_and_the_next_one_must_wait(stage: Stage) -> None:
    power, (one, two, _) = power_of(stage), stage.nodes
    assert power.may_go(one) and power.may_go(two)
    one.crash()
    assert not power.may_go(two)
    assert power.may_go(one)  # again: it has nothing more to lose


def test_a_cut_that_is_yet_to_come_counts(stage: Stage) -> None:
    power, (one, two, _) = power_of(stage), stage.nodes
    one.host.drive.crash_after(5)
    assert not power.may_go(two)
    one.kill()  # and so it does not come
    assert power.may_go(two)


def test_a_failed_sync_counts_as_a_cut(stage: Stage) -> None:
    power, (one, two, _) = power_of(stage), stage.nodes
    one.is_doubtful = True
    assert not power.may_go(two)


def test_two_may_be_without_power_where_three_have_everything(stage: Stage) -> None:
    power, (one, two, three) = power_of(stage, spared=2), stage.nodes
    one.crash()
    assert power.may_go(two)
    two.crash()
    assert not power.may_go(three)


def test_whoever_cuts_too_much_is_found(stage: Stage) -> None:
    power_of(stage)
    stage.nodes[0].crash()
    assert not stage.model.violations
    stage.nodes[1].crash()
    assert "keep its power" in stage.model.violations[0].expected
