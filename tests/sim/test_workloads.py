"""Every workload in seeded worlds: DESIGN's promises hold after every run, and every planted bug is found.

The seeds are fixed, so that a failure is the same for everybody; `make sim` tries others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from moldau.sim.stage import Outcome
from moldau.sim.workloads import WORKLOADS

QUICK_SEEDS = {
    "log": range(1, 5),
    "groups": range(1, 5),
    "consumer-groups": range(1, 5),
    "transactions": range(1, 6),
}
MORE_SEEDS = range(7, 27)
PLANT_SEEDS = range(1, 13)
FOUND_WITH = {
    "bad-batch-taken": 6,
    "a-silent-member-stays": 2,
    "decided-ends-forgotten": 2,
    "leader-epoch-goes-on-after-a-crash": 4,
    "member-epoch-not-checked": 5,
    "offsets-not-verified": 2,
    "retries-forgotten-at-restart": 5,
    "taken-to-be-given-up": 3,
    "torn-tail-kept": 9,
    "unstable-offsets-told": 3,
    "visible-before-flushed": 3,
}
"""Seeds to begin with where the first ones do not find a bug."""
HAPPENS = {
    "log": ("records acknowledged", "records read", "power cuts", "kills"),
    "groups": ("assignments", "commits acknowledged", "commits refused", "leaves"),
    "consumer-groups": ("assignments", "commits acknowledged", "fenced", "leaves", "clients killed"),
    "transactions": (
        "committed",
        "aborted",
        "fenced",
        "dawdled",
        "records copied",
        "committed records read",
        "clients killed",
    ),
}
"""Runs without these would not be worth their name."""


@cache
def clean_run(workload: str, seed: int) -> Outcome:
    return WORKLOADS[workload].simulate(seed, WORKLOADS[workload].seconds)


def check(workload: str, seed: int) -> None:
    outcome = clean_run(workload, seed)
    found = "\n".join(str(violation) for violation in outcome.violations)
    assert not outcome.violations, f"python -m moldau.sim --workload {workload} --seed {seed}\n{found}"


@pytest.mark.parametrize(
    ("workload", "seed"), [(workload, seed) for workload in WORKLOADS for seed in QUICK_SEEDS[workload]]
)
def test_promises_hold_in_a_world_that_fails(workload: str, seed: int) -> None:
    check(workload, seed)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_runs_do_what_they_are_made_for(workload: str) -> None:
    counts = [clean_run(workload, seed).counts for seed in QUICK_SEEDS[workload]]
    for what in HAPPENS[workload]:
        assert sum(count.get(what, 0) for count in counts) > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_promises_hold_in_more_worlds(workload: str, seed: int) -> None:
    check(workload, seed)


@pytest.mark.parametrize(
    ("workload", "name"), [(workload, name) for workload in WORKLOADS for name in WORKLOADS[workload].plants]
)
def test_a_planted_bug_is_found(workload: str, name: str) -> None:
    first = FOUND_WITH.get(name, PLANT_SEEDS[0])
    for seed in [first, *PLANT_SEEDS]:
        with WORKLOADS[workload].plants.planted(name):
            outcome = WORKLOADS[workload].simulate(seed, WORKLOADS[workload].seconds)
        if outcome.violations:
            check(workload, seed)  # and by nothing else than the bug
            return
    pytest.fail(f"{name} was not found with the seeds {PLANT_SEEDS}")


def test_runs_of_all_workloads_are_replayed_exactly_in_another_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "moldau.sim", "--workload", "all", "--seed", "3", "--seconds", "2"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.count("digest") == len(WORKLOADS)
        told.add(run.stdout)
    assert len(told) == 1
