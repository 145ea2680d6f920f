"""One Spark session for the tests of a file, and the brokers that they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark.session import Unavailable, new_session, require_spark
from needs import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def requires_spark() -> None:
    """Java 17 and PySpark."""
    try:
        require_spark()
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture(scope="module")
def spark(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = new_session(
        "moldau-tests",
        "local[2,4]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    yield session
    session.stop()
