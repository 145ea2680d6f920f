"""One Spark session for the tests of a file, and the brokers that they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark_connector import connector_jars
from moldau.spark.session import Unavailable, new_session, require_spark
from needs import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = {
    "test_audit_cli",
    "test_bench_spark",
    "test_connector_interop",
    "test_connector_pipeline",
    "test_demo",
    "test_example_changes",
    "test_example_fleet",
    "test_example_logs",
    "test_example_metrics",
    "test_example_routing",
    "test_example_website",
    "test_example_website_cluster",
    "test_lake_faults",
    "test_pipeline_both_runners",
    "test_pipeline_cli",
    "test_secured_listeners",
    "test_sink_faults",
    "test_spark_security",
    "test_sql_cli",
}
"""Files that start drivers and clusters over and over."""
TIMEOUT_S = 900
"""Of a test: some start several drivers, each of which takes half a minute on busy cores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            if item.path.stem in LONG:
                item.add_marker(pytest.mark.long)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def requires_spark() -> None:
    """Java 17 and PySpark."""
    try:
        require_spark()
    except Unavailable as reason:
        missing(str(reason))


def settings_of_tests(folder: Path) -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.streaming.pollingDelay": "10ms",
    }


@pytest.fixture(scope="module")
def spark(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = new_session("moldau-tests", "local[2,4]", settings_of_tests(tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark_with_connector(
    requires_spark: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """With Spark's own Kafka connector, `format("kafka")`, in a JVM of its own: jars are taken at its start only."""
    try:
        jars = {"spark.jars": connector_jars()}
    except Unavailable as reason:
        missing(str(reason))
    end_jvm()
    settings = settings_of_tests(tmp_path_factory.mktemp("spark"))
    session = new_session("moldau-tests", "local[2,4]", settings | jars)
    yield session
    session.stop()
    end_jvm()


def end_jvm() -> None:
    """The JVM outlives its sessions; the next one starts another."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
