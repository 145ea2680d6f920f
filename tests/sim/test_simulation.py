"""One broker in a seeded world: promises 2, 3 and 7 hold after every run, and planted bugs are found."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from moldau.sim.plants import PLANTS, planted
from moldau.sim.workload import simulate

SECONDS = 6.0
QUICK_SEEDS = range(1, 7)
MORE_SEEDS = range(7, 31)
FRESH_SEEDS = [secrets.randbelow(10**9) for _ in range(4)]
PLANT_SEEDS = range(1, 13)


def check(seed: int) -> None:
    outcome = simulate(seed, SECONDS)
    found = "\n".join(str(violation) for violation in outcome.violations)
    assert not outcome.violations, f"python -m moldau.sim --seed {seed}\n{found}"
    assert outcome.counts["records acknowledged"] > 0


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_promises_hold_in_a_world_that_fails(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_promises_hold_in_more_worlds(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FRESH_SEEDS)))
def test_promises_hold_in_a_world_never_seen_before(number: int) -> None:
    check(FRESH_SEEDS[number])


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    for seed in PLANT_SEEDS:
        with planted(name):
            if simulate(seed, SECONDS).violations:
                return
    pytest.fail(f"{name} was not found with the seeds {PLANT_SEEDS}")


def test_a_run_is_replayed_exactly_in_another_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "moldau.sim", "--seed", "3", "--seconds", "2"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        digests.add(run.stdout)
    assert len(digests) == 1
