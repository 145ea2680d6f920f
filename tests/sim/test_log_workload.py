"""Producers and readers in seeded worlds: promises 2, 3 and 7 hold after every run, and planted bugs are found."""

from __future__ import annotations

import pytest

from moldau.sim.workloads import WORKLOADS

from .worlds import MORE_SEEDS, check_clean, check_found, check_happened

WORKLOAD = "log"
SEEDS = range(1, 5)
FOUND_WITH = {
    "bad-batch-taken": 6,
    "leader-epoch-goes-on-after-a-crash": 4,
    "retries-forgotten-at-restart": 5,
    "torn-tail-kept": 9,
    "visible-before-flushed": 3,
}
"""Seeds to begin with where the first one does not find a bug."""


@pytest.mark.parametrize("seed", SEEDS)
def test_logs_keep_their_promises_in_a_world_that_fails(seed: int) -> None:
    check_clean(WORKLOAD, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_logs_keep_their_promises_in_more_worlds(seed: int) -> None:
    check_clean(WORKLOAD, seed)


def test_the_runs_do_what_they_are_made_for() -> None:
    check_happened(WORKLOAD, SEEDS, "records acknowledged", "records read", "power cuts", "kills")


@pytest.mark.parametrize("plant", WORKLOADS[WORKLOAD].plants)
def test_a_planted_bug_is_found(plant: str) -> None:
    check_found(WORKLOAD, plant, FOUND_WITH.get(plant, 1))
