"""Transactions in seeded worlds: promises 3, 4 and 6 hold after every run, and planted bugs are found."""

from __future__ import annotations

import pytest

from moldau.sim.workloads import WORKLOADS

from .worlds import MORE_SEEDS, check_clean, check_found, check_happened

WORKLOAD = "transactions"
SEEDS = range(1, 6)
FOUND_WITH = {
    "a-fenced-producer-ends-transactions": 15,
    "end-answered-before-it-is-decided": 39,
    "unstable-offsets-told": 5,
}
"""Seeds to begin with where the first one does not find a bug."""


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_keep_their_promises_in_a_world_that_fails(seed: int) -> None:
    check_clean(WORKLOAD, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_transactions_keep_their_promises_in_more_worlds(seed: int) -> None:
    check_clean(WORKLOAD, seed)


def test_the_runs_do_what_they_are_made_for() -> None:
    check_happened(
        WORKLOAD,
        SEEDS,
        "committed",
        "aborted",
        "fenced",
        "dawdled",
        "records copied",
        "committed records read",
        "clients killed",
    )


@pytest.mark.parametrize("plant", WORKLOADS[WORKLOAD].plants)
def test_a_planted_bug_is_found(plant: str) -> None:
    check_found(WORKLOAD, plant, FOUND_WITH.get(plant, 1))
