"""Change data in a project: the latest row of each key, or every row with when it was valid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark.pipeline.declared import Mistakes
from moldau.spark.pipeline.opening import open_project
from spark.pipelines import READ_ORDERS, add_orders, run_once, table, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = """\
dp.create_streaming_table("latest")
dp.create_auto_cdc_flow(
    target="latest", source="orders", keys=["id"], sequence_by=F.col("price"), apply_as_deletes="item = 'gone'",
)
"""
HISTORY = """\
CREATE STREAMING TABLE history;
CREATE FLOW changes AS AUTO CDC INTO history FROM STREAM orders KEYS (id)
  APPLY AS DELETE WHEN item = 'gone' SEQUENCE BY price COLUMNS * EXCEPT (price) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW dear AS SELECT item FROM latest WHERE price > 5;
"""


def test_change_data_from_python_and_sql_become_tables_of_both_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    project = write(tmp_path, {"a.py": READ_ORDERS + LATEST, "b.sql": HISTORY})
    add_orders(tmp_path, "1", [(1, "tea", 1.0), (1, "green tea", 3.0), (2, "pot", 2.0), (3, "cup", 4.0)])
    runner, watching = run_once(spark, project)
    assert runner.all_went_well, "\n".join(watching.events)
    add_orders(tmp_path, "2", [(1, "came late", 2.0), (3, "gone", 5.0), (2, "large pot", 6.0)])
    runner, watching = run_once(spark, project)
    assert runner.all_went_well, "\n".join(watching.events)
    assert table(project, "latest") == [
        {"id": 1, "item": "green tea", "price": 3.0},
        {"id": 2, "item": "large pot", "price": 6.0},
    ]
    valid = [(row["item"], row["__START_AT"], row["__END_AT"]) for row in table(project, "history")]
    assert valid == [
        ("came late", 2.0, 3.0),
        ("green tea", 3.0, None),
        ("tea", 1.0, 2.0),
        ("large pot", 6.0, None),
        ("pot", 2.0, 6.0),
        ("cup", 4.0, 5.0),
    ]
    assert table(project, "dear") == [{"item": "large pot"}]


def test_change_data_that_cannot_be_is_refused_where_it_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    wrong = LATEST.replace('keys=["id"]', 'keys=["ide"]').replace("latest", "keyless")
    reading = '@dp.table\ndef stream():\n    return spark.readStream.table("latest")\n'
    project = write(tmp_path, {"a.py": READ_ORDERS + LATEST + wrong + reading})
    with pytest.raises(Mistakes) as raised:
        open_project(spark, project)
    found = [str(mistake) for mistake in raised.value.found]
    assert [line.partition(": ")[0] for line in found] == ["t/a.py:13", "t/a.py:16"]
    assert "key ide is not among" in found[0]
    assert "'stream' reads 'latest' as a stream, but its rows change" in found[1]
