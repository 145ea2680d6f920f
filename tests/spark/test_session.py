"""The session: workers run this Python, and what is missing is said in one sentence."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from moldau.spark.session import Unavailable, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_the_python_that_started_the_session(spark: SparkSession) -> None:
    def executable(batches):  # type: ignore[no-untyped-def]
        import pandas

        for _ in batches:
            yield pandas.DataFrame({"path": [sys.executable]})

    (row,) = spark.range(1).mapInPandas(executable, "path string").collect()
    assert row.path == sys.executable


def test_workers_import_the_installed_pyspark_and_no_zip_of_it(spark: SparkSession) -> None:
    import pyspark

    def place(batches):  # type: ignore[no-untyped-def]
        import pandas
        import pyspark

        for _ in batches:
            yield pandas.DataFrame({"path": [pyspark.__file__]})

    (row,) = spark.range(1).mapInPandas(place, "path string").collect()
    assert row.path == pyspark.__file__


def test_without_java_the_sentence_says_what_to_install(
    requires_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        Unavailable, match=r"^Spark needs Java 17 or newer, and there is no `java` here\. On Debian: "
    ):
        require_spark()


def test_without_pyspark_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    said = r"^Spark is not installed: `pip install '\.\[spark\]'` in a clone of Moldau\.$"
    with pytest.raises(Unavailable, match=said):
        require_spark()
