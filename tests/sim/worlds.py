"""Runs of a workload, as its tests judge them: clean as it is, and not with a bug in the broker.

The seeds are fixed, so that a failure is the same for everybody; `make sim` tries others.
"""

from __future__ import annotations

from functools import cache

import pytest

from moldau.sim.stage import Outcome
from moldau.sim.workloads import WORKLOADS

MORE_SEEDS = range(11, 16)
PLANT_SEEDS = range(1, 13)


@cache
def clean_run(workload: str, seed: int) -> Outcome:
    return WORKLOADS[workload].simulate(seed, WORKLOADS[workload].seconds)


def check_clean(workload: str, seed: int) -> None:
    _check(workload, clean_run(workload, seed), "")


def check_short(workload: str, seed: int, seconds: float) -> None:
    _check(workload, WORKLOADS[workload].simulate(seed, seconds), f" --seconds {seconds}")


def _check(workload: str, outcome: Outcome, options: str) -> None:
    found = "\n".join(str(violation) for violation in outcome.violations)
    command = f"python -m moldau.sim --workload {workload} --seed {outcome.seed}{options}"
    assert not outcome.violations, f"{command}\n{found}"


def check_happened(workload: str, seeds: range, *wanted: str) -> None:
    """Runs without these would not be worth their name."""
    counts = [clean_run(workload, seed).counts for seed in seeds]
    for what in wanted:
        assert sum(count.get(what, 0) for count in counts) > 0, what


def check_found(workload: str, plant: str, first_seed: int, seconds: float | None = None) -> None:
    """A planted bug is found within a few seeds, and the seed that finds it finds nothing without it."""
    for seed in [first_seed, *PLANT_SEEDS]:
        with WORKLOADS[workload].plants.planted(plant):
            outcome = WORKLOADS[workload].simulate(seed, seconds or WORKLOADS[workload].seconds)
        if outcome.violations:
            if seconds is None:
                check_clean(workload, seed)
            else:
                check_short(workload, seed, seconds)
            return
    pytest.fail(f"{plant} was not found with the seeds {PLANT_SEEDS}")
