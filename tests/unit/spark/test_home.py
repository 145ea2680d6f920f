"""The home for the Spark of pip: the installed one without its zip, made once, and no obstacle where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.spark.home import lean_home, use_lean_home


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "pyspark"
    for name in ("bin/spark-submit", "jars/spark-core.jar", "python/lib/pyspark.zip"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_it_has_what_spark_has_but_for_the_zip(installed: Path, tmp_path: Path) -> None:
    home = lean_home(installed, tmp_path / "cache")
    assert home is not None
    assert (home / "jars" / "spark-core.jar").exists() and not (home / "python").exists()
    assert lean_home(installed, tmp_path / "cache") == home
    assert os.listdir(tmp_path / "cache") == [home.name]
    (installed / "conf").mkdir()
    (installed / "conf" / "spark-defaults.conf").touch()
    assert (home / "conf" / "spark-defaults.conf").exists(), "what is set later counts, too"


def test_another_process_that_was_sooner_is_not_disturbed(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    rename = Path.rename

    def sooner(draft: Path, home: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        assert lean_home(installed, cache) == home
        return draft.rename(home)

    monkeypatch.setattr(Path, "rename", sooner)
    home = lean_home(installed, cache)
    assert home is not None and os.listdir(cache) == [home.name]


def test_where_it_cannot_be_made_there_is_none(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert lean_home(installed, tmp_path / "file" / "cache") is None

    def refused(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refused)
    assert lean_home(installed, tmp_path / "cache") is None
    assert os.listdir(tmp_path / "cache") == []


def test_a_home_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    use_lean_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
