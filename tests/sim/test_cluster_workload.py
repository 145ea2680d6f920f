"""Clusters in seeded worlds: the promises hold whatever befalls brokers, store and network, and planted bugs are found.

Short runs of many seeds say more than long ones of few: most of what goes wrong does so soon after a fault.
"""

from __future__ import annotations

import pytest

from moldau.sim.workloads import WORKLOADS

from .worlds import MORE_SEEDS, check_clean, check_found, check_happened, check_short

WORKLOAD = "cluster"
SEEDS = range(1, 5)
SHORT_SEEDS = range(1000, 1220)
SHORT_SECONDS = 2.5
PLANT_SECONDS = 3.0
SEEDS_PER_TEST = 10
FOUND_WITH = {
    "a-fenced-leader-still-writes": 4,
    "a-follower-serves-past-its-high-watermark": 2,
    "a-lost-disk-is-not-told": 96,
    "a-replica-keeps-its-torn-tail": 19,
    "proposed-member-counted-too-late": 73,
    "records-deleted-before-followers-know": 12,
    "sequences-forgotten-in-a-fail-over": 2,
    "the-last-record-of-a-key-compacted-away": 9,
}
"""Seeds to begin with where the first one does not find a planted bug."""


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_keep_their_promises_in_a_world_that_fails(seed: int) -> None:
    check_clean(WORKLOAD, seed)


@pytest.mark.parametrize("first", SHORT_SEEDS[::SEEDS_PER_TEST])
def test_clusters_keep_their_promises_in_many_short_runs(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check_short(WORKLOAD, seed, SHORT_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_clusters_keep_their_promises_in_more_worlds(seed: int) -> None:
    check_clean(WORKLOAD, seed)


def test_the_runs_do_what_they_are_made_for() -> None:
    check_happened(WORKLOAD, SEEDS, "records acknowledged", "records read", "kills", "fetches")


@pytest.mark.parametrize("plant", WORKLOADS[WORKLOAD].plants)
def test_a_planted_bug_is_found(plant: str) -> None:
    check_found(WORKLOAD, plant, FOUND_WITH.get(plant, 1), PLANT_SECONDS)
