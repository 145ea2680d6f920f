"""A consumer group in a seeded world: promise 5 holds after every run, and planted bugs are found."""

from __future__ import annotations

import secrets

import pytest

from moldau.sim.group_plants import GROUP_PLANTS, planted_in_groups
from moldau.sim.group_workload import simulate_groups

QUICK_SEEDS = range(1, 5)
MORE_SEEDS = range(5, 25)
FRESH_SEEDS = [secrets.randbelow(10**9) for _ in range(3)]
PLANT_SEEDS = range(1, 13)


def check(seed: int) -> None:
    outcome = simulate_groups(seed)
    found = "\n".join(str(violation) for violation in outcome.violations)
    assert not outcome.violations, f"python -m moldau.sim --workload groups --seed {seed}\n{found}"
    assert outcome.counts["assignments"] > 0


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_group_keeps_its_promises_in_a_world_that_fails(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_a_group_keeps_its_promises_in_more_worlds(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FRESH_SEEDS)))
def test_a_group_keeps_its_promises_in_a_world_never_seen_before(number: int) -> None:
    check(FRESH_SEEDS[number])


@pytest.mark.parametrize("name", sorted(GROUP_PLANTS))
def test_a_bug_planted_in_the_coordinator_is_found(name: str) -> None:
    for seed in PLANT_SEEDS:
        with planted_in_groups(name):
            if simulate_groups(seed).violations:
                return
    pytest.fail(f"{name} was not found with the seeds {PLANT_SEEDS}")


def test_a_run_of_groups_is_the_same_every_time() -> None:
    assert simulate_groups(3, 5.0).digest == simulate_groups(3, 5.0).digest
