"""The long run, in short: it starts, kills and stops a broker under load, and its model agrees at the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.soak import Soak

SECONDS = 8.0
USUAL_SEED = 5


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the long run reads /proc")
def test_a_short_long_run_ends_with_agreement(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--target") != "moldau":
        pytest.skip("The long run starts brokers of its own.")
    summary = Soak(tmp_path, SECONDS, USUAL_SEED).run()
    assert summary.problems == []
    assert summary.kills + summary.stops > 0
    assert summary.acknowledged > 0 and summary.read > 0
