"""One seed has one digest, in whatever process."""

from __future__ import annotations

import os
import subprocess
import sys

from moldau.sim.workloads import WORKLOADS


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
