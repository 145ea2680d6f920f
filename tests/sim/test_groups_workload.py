"""A classic group in seeded worlds: promises 5 and 6 hold after every run, and planted bugs are found."""

from __future__ import annotations

import pytest

from moldau.sim.workloads import WORKLOADS

from .worlds import MORE_SEEDS, check_clean, check_found, check_happened

WORKLOAD = "groups"
SEEDS = range(1, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_keeps_its_promises_in_a_world_that_fails(seed: int) -> None:
    check_clean(WORKLOAD, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_a_group_keeps_its_promises_in_more_worlds(seed: int) -> None:
    check_clean(WORKLOAD, seed)


def test_the_runs_do_what_they_are_made_for() -> None:
    check_happened(WORKLOAD, SEEDS, "assignments", "commits acknowledged", "commits refused", "leaves")


@pytest.mark.parametrize("plant", WORKLOADS[WORKLOAD].plants)
def test_a_planted_bug_is_found(plant: str) -> None:
    check_found(WORKLOAD, plant, 1)
