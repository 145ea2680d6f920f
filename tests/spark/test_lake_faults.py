"""Spark runs the lake and things die: tasks, workers, the commit, the whole driver. Rows are counted afterwards.

`make lake-rounds` kills the driver more often (ROUNDS, SEED).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from moldau.spark.lake.folder import visible_files
from spark import delta_reader, lake_driver
from spark.lake_driver import COMMIT_STEPS, FORMATS, ROWS, TASK_STEPS, faulty

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("ROUNDS", "2"))

both = pytest.mark.parametrize("table_format", FORMATS)


def rows_of(path: Path, table_format: str) -> Counter[int]:
    if table_format == "delta":
        return Counter(delta_reader.table_of(path)["value"].to_pylist())
    seen: Counter[int] = Counter()
    for file in visible_files(str(path)):
        seen.update(pq.read_table(path / file, partitioning=None)["value"].to_pylist())
    return seen


@pytest.fixture(scope="module", autouse=True)
def by_value() -> Iterator[None]:
    """Workers need not find this folder: what breaks is sent to them as it is."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(lake_driver)
    yield
    cloudpickle.unregister_pickle_by_value(lake_driver)


@both
@pytest.mark.parametrize("action", ["fail", "kill"])
def test_tasks_that_fail_or_are_killed_at_any_step_are_tried_again(
    spark: SparkSession, tmp_path: Path, table_format: str, action: str
) -> None:
    faults = tmp_path / "faults"
    spark.dataSource.register(faulty(faults, dict.fromkeys(TASK_STEPS, action)))
    frame = spark.range(0, 1000, numPartitions=2).withColumnRenamed("id", "value")
    frame.write.format("faulty_lake").mode("append").option("tableFormat", table_format).save(
        str(tmp_path / "lake")
    )
    assert {path.stem for path in faults.iterdir()} == set(TASK_STEPS), "every step had its fault"
    assert rows_of(tmp_path / "lake", table_format) == Counter(range(1000))


@both
def test_a_commit_that_is_killed_at_any_step_is_finished_by_the_restarted_query(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    steps = COMMIT_STEPS[table_format]
    batches = len(steps) + 2
    for step in steps:
        spark.dataSource.register(faulty(tmp_path / step, {step: "kill"}))
        with pytest.raises(Exception, match=r"(?i)python"):
            lake_driver.start(spark, tmp_path, batches, table_format).awaitTermination(120)
        assert (tmp_path / step / f"{step}.0").exists()
    lake_driver.start(spark, tmp_path, batches, table_format).awaitTermination(120)
    assert rows_of(tmp_path / table_format, table_format) == Counter(range(batches * ROWS))


@pytest.mark.timeout(300 * (KILLS + 1))
def test_a_driver_that_is_killed_writes_every_row_once(
    tmp_path: Path, requires_spark: None, pytestconfig: pytest.Config
) -> None:
    chance = random.Random(int(pytestconfig.getoption("--seed") or 1))
    batches = KILLS + 2
    kills = 0
    steps = sorted({*COMMIT_STEPS["delta"], *COMMIT_STEPS["parquet"], *TASK_STEPS})
    for attempt in range(KILLS + 1):
        step = chance.choice(steps) if attempt < KILLS else ""
        code, output = run_driver(tmp_path, batches, step, chance.randrange(3))
        assert code in ((0, -signal.SIGKILL) if step else (0,)), output
        kills += code != 0
    assert kills, "nothing was killed"
    for table_format in FORMATS:
        assert rows_of(tmp_path / table_format, table_format) == Counter(range(batches * ROWS)), table_format


def run_driver(folder: Path, batches: int, step: str, nth: int) -> tuple[int, str]:
    command = [sys.executable, "-m", "spark.lake_driver", str(folder), str(batches), step, str(nth)]
    log = folder / "driver.log"  # not a pipe: workers that outlive the driver for a while would hold it open
    with open(log, "wb") as output:
        code = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            stdout=output,
            stderr=output,
            timeout=240,
            check=False,
        ).returncode
    return code, log.read_text(errors="replace")[-3000:]


def test_spark_tells_its_tasks_the_query_and_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """By names of its own that it does not promise to keep; without them nothing would be exactly once."""
    query = lake_driver.start(spark, tmp_path, 2, "delta", "moldau_lake")
    query.awaitTermination(120)
    assert DeltaTable(str(tmp_path / "delta")).transaction_version(str(query.id)) == 1
