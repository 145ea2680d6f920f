"""`make bench-spark`, in small amounts: every section has its figures, and nothing is left running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark import plan as names
from bench.spark_connector import connector_jars
from moldau.spark.session import Unavailable
from needs import missing


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It reads /proc.")
def test_the_quick_benchmarks_measure_every_section(requires_spark: None, tmp_path: Path) -> None:
    try:
        connector_jars()
    except Unavailable as reason:
        missing(str(reason))
    kept = tmp_path / "kept.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark", "--quick", "--docs", str(tmp_path), "--json", str(kept)],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(kept.read_text())
    assert tuple(found) == names.SECTIONS
    for name, section in found.items():
        assert section["readings"], name
        for cases in section["readings"].values():
            assert all(
                value >= 0 for sides in cases.values() for values in sides.values() for value in values
            )
    page = (tmp_path / "benchmarks-spark.md").read_text()
    for name in names.SECTIONS:
        assert f"\n## {name}\n" in page
    assert "![Reading](benchmarks-spark-reading.png)" in page
