"""The fixture is measured in an installation as users have it, and nothing of that is rewritten by pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import fixture
from bench.measure import FIXTURE
from bench.report import MOLDAU, with_budgets, with_section
from bench.runner import Results

CHECK = """
import sys


def test_it(request, moldau_cluster):
    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "moldau"}
    assert all("/site/moldau/" in module.__file__ for module in ours.values())
    hooks = {name: type(module.__loader__).__name__ for name, module in ours.items()}
    rewritten = {name for name, hook in hooks.items() if hook == "AssertionRewritingHook"}
    assert rewritten == {"moldau", "moldau.testing", "moldau.testing.plugin"}
"""


@pytest.mark.slow
def test_of_a_wheel_pytest_rewrites_the_plugin_alone(tmp_path: Path) -> None:
    installation = fixture.Installation(tmp_path / "here")
    (installation.project / "test_start.py").write_text(CHECK)
    assert "1 passed" in installation.pytest()


@pytest.mark.slow
def test_a_run_measures_the_fixture_cold_and_warm(tmp_path: Path) -> None:
    results = Results()
    results.add(FIXTURE, MOLDAU, fixture.starts(tmp_path / "here", runs=1))
    assert {len(series.values[MOLDAU]) for series in results.sections[FIXTURE].values()} == {1}
    page = with_section("", FIXTURE, results)
    for name in (fixture.COLD, fixture.WARM, fixture.WHOLE):
        assert f"| {name} | s |" in page
    assert "testcontainers" in page
    assert "| fixture for tests, first run | 0.35 s |" in with_budgets("", results, FIXTURE)
