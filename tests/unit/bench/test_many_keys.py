"""The measurement of a compaction with many keys proves what was compacted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import many_keys


def test_it_counts_every_key_once_and_says_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--keys", "6400", "--bytes", "2000000", "--folder", str(tmp_path), "--buffer", "2000000"]
    monkeypatch.setattr(sys, "argv", ["many_keys", *arguments])
    assert many_keys.main() == 0
    output = capsys.readouterr().out
    assert "compacted 7,040 records to 6,400" in output
    assert "6,400 keys are left, each once" in output
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_there_twice_is_found(tmp_path: Path) -> None:
    many_keys.make_log(tmp_path, 640, 200_000)
    with pytest.raises(SystemExit, match="is there twice"):
        many_keys.count_keys(str(tmp_path), [])
