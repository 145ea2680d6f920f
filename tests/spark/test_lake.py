"""The lake: what is written is there once, parted, in files of bounded size, and others can read it."""

from __future__ import annotations

import datetime
import glob
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cluster.support import wait_until
from moldau.spark.lake.folder import visible_files
from moldau.spark.lake.maintenance import maintain
from spark import delta_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 18, 12, tzinfo=UTC)


def write(
    frame: DataFrame, path: Path, table_format: str = "delta", mode: str = "append", **options: Any
) -> None:
    writer = frame.write.format("moldau_lake").mode(mode).option("tableFormat", table_format)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(str(path))


def rows_of(path: Path, table_format: str) -> list[dict[str, Any]]:
    """The table's rows as readers that are not Spark see them."""
    if table_format == "delta":
        return delta_reader.rows_of(path)
    return (
        duckdb.sql(f"select * from read_parquet('{path}/**/*.parquet', union_by_name=true)")
        .to_arrow_table()
        .to_pylist()
    )


def ids(path: Path, table_format: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(path, table_format))


Stream = Callable[..., Any]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Runs a query over files that the test adds, until it has caught up."""
    source = tmp_path / "in"
    source.mkdir()

    def run(
        rows: list[dict[str, Any]], schema: str, path: Path, table_format: str = "delta", **options: Any
    ) -> Any:
        if rows:
            number = len(list(source.iterdir()))
            (source / f"{number:05d}.json").write_text("\n".join(json.dumps(row) for row in rows))
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(source))
        writer = frame.writeStream.format("moldau_lake").option("tableFormat", table_format)
        for name, value in options.items():
            writer = writer.option(name, value)
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(path))
        )
        query.awaitTermination(120)
        return query

    return run


both = pytest.mark.parametrize("table_format", ["delta", "parquet"])


@both
def test_a_stream_is_written_once_over_restarts(stream: Stream, tmp_path: Path, table_format: str) -> None:
    lake = tmp_path / "lake"
    for batch in range(3):
        stream([{"id": batch * 10 + at} for at in range(10)], "id long", lake, table_format)
    stream([], "id long", lake, table_format)
    assert ids(lake, table_format) == list(range(30))


@both
def test_rows_are_parted_by_day_and_hour(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    lake = tmp_path / "lake"
    rows = [(at, NOON + datetime.timedelta(minutes=30 * at)) for at in range(48)]
    write(
        spark.createDataFrame(rows, "id long, timestamp timestamp"),
        lake,
        table_format,
        partitionByTime="timestamp",
    )
    found = {row["id"]: (str(row["date"]), int(row["hour"])) for row in rows_of(lake, table_format)}
    assert found == {at: (str(time.date()), time.hour) for at, time in rows}
    folders = {os.path.dirname(file) for file in visible_files(str(lake))}
    assert (
        "date=2026-11-18/hour=12" in folders and "date=2026-11-19/hour=11" in folders and len(folders) == 24
    )


@both
def test_rows_are_parted_by_columns_with_any_value(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    lake = tmp_path / "lake"
    values = ["a", "b c", "d/e", "f=g", "100%", "ü", "..", None, "2026:1"]
    frame = spark.createDataFrame(
        [(at, value) for at, value in enumerate(values * 2)], "id long, kind string"
    )
    write(frame, lake, table_format, partitionBy="kind")
    reader = spark.read.format("moldau_lake").option("tableFormat", table_format).load(str(lake))
    assert {row.id: row.kind for row in reader.collect()} == dict(enumerate(values * 2))
    assert (
        {row["id"]: row["kind"] for row in rows_of(lake, "delta")} == dict(enumerate(values * 2))
        if (table_format == "delta")
        else spark.read.parquet(str(lake)).count() == len(values) * 2
    )


@both
def test_duckdb_pandas_arrow_and_spark_read_the_same_rows(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    lake = tmp_path / "lake"
    frame = spark.range(1000).selectExpr(
        "id",
        "cast(id % 7 as string) as name",
        "timestamp_millis(id) as at",
        "struct(id as x, array(id) as y) as deep",
    )
    write(frame, lake, table_format)
    expected = sum(range(1000))
    if table_format == "delta":
        dataset = duckdb.from_arrow(delta_reader.dataset_of(lake))
        assert dataset.aggregate("sum(id)").fetchall() == [(expected,)]
        assert DeltaTable(str(lake)).to_pandas(filesystem=delta_reader.files_of(lake))["id"].sum() == expected
    else:
        assert duckdb.sql(f"select sum(id) from read_parquet('{lake}/*.parquet')").fetchall() == [(expected,)]
        assert pandas.read_parquet(lake)["id"].sum() == expected
        assert spark.read.parquet(str(lake)).count() == 1000
    back = spark.read.format("moldau_lake").option("tableFormat", table_format).load(str(lake))
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert back.exceptAll(frame).count() == 0 and back.count() == 1000


@both
def test_every_type_comes_back(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    lake = tmp_path / "lake"
    frame = spark.sql(
        "select 1Y as tiny, 2S as small, 3 as whole, 4L as long, 1.5f as single, 2.5d as double, true as flag,"
        " 'x' as text,"
        " X'00ff' as bytes, date'2026-11-18' as day, timestamp'2026-11-18 12:00:00' as time,"
        " timestamp_ntz'2026-11-18 12:00:00' as local, cast(1.25 as decimal(10, 2)) as price,"
        " array(1, null) as list, map('k', 1L) as pairs, struct(1 as x, 'y' as z) as deep,"
        " cast(null as string) as nothing"
    )
    write(frame, lake, table_format)
    back = spark.read.format("moldau_lake").option("tableFormat", table_format).load(str(lake))
    assert back.collect() == frame.collect()


def test_empty_batches_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write(spark.range(3).where("id < 0"), lake)
    assert DeltaTable(str(lake)).version() == 0 and visible_files(str(lake)) == []
    write(spark.range(3), lake)
    write(spark.range(3).where("id < 0"), lake)
    assert DeltaTable(str(lake)).version() == 1
    write(spark.range(3).where("id < 0"), tmp_path / "folder", "parquet")
    assert visible_files(str(tmp_path / "folder")) == []


@both
def test_files_keep_to_their_size(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    lake = tmp_path / "lake"
    write(spark.range(0, 2500, numPartitions=2), lake, table_format, maxRecordsPerFile=1000)
    sizes = sorted(pq.read_metadata(lake / file).num_rows for file in visible_files(str(lake)))
    assert sizes == [250, 250, 1000, 1000]
    assert ids(lake, table_format) == list(range(2500))


@both
def test_a_batch_write_with_a_name_is_kept_once(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    lake = tmp_path / "lake"
    for version in (0, 0, 1, 1, 0):
        first = version * 10
        write(spark.range(first, first + 10), lake, table_format, txnAppId="job", txnVersion=version)
    assert ids(lake, table_format) == list(range(20))
    write(spark.range(20, 30), lake, table_format, txnAppId="another", txnVersion=0)
    write(spark.range(30, 40), lake, table_format)
    assert ids(lake, table_format) == list(range(40))


def test_overwrite_replaces_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write(spark.range(10), lake)
    write(spark.range(10, 15), lake, mode="overwrite")
    assert ids(lake, "delta") == list(range(10, 15))
    with pytest.raises(Exception, match="can only be appended to"):
        write(spark.range(10), tmp_path / "folder", "parquet", mode="overwrite")


def test_in_complete_mode_each_batch_replaces_the_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for batch in range(2):
        (tmp_path / "in" / f"{batch}.json").write_text('{"id": 1}\n{"id": 2}')
        frame = spark.readStream.schema("id long").json(str(tmp_path / "in")).groupBy("id").count()
        writer = frame.writeStream.format("moldau_lake").outputMode("complete").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(
            str(tmp_path / "lake")
        )
        query.awaitTermination(120)
        found = {row["id"]: row["count"] for row in rows_of(tmp_path / "lake", "delta")}
        assert found == {1: batch + 1, 2: batch + 1}


@both
def test_the_method_partition_by_is_not_passed_over(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    """Spark tells a Python data source nothing of it: either it is refused, or this table would not be parted."""
    frame = spark.createDataFrame([(1, "a")], "id long, kind string")
    writer = frame.write.format("moldau_lake").mode("append").option("tableFormat", table_format)
    with pytest.raises(Exception, match=r"(?i)partition"):
        writer.partitionBy("kind").save(str(tmp_path / "lake"))


def test_small_files_are_compacted_beside_readers(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for batch in range(4):
        stream([{"id": batch}], "id long", lake)
    before = DeltaTable(str(lake))
    old_files = before.file_uris()
    done = maintain(str(lake), target_bytes=1 << 20, retention_hours=168)
    assert done is not None and (done.files_removed, done.files_added, done.files_deleted) == (4, 1, 0)
    assert before.to_pyarrow_table(filesystem=delta_reader.files_of(lake)).num_rows == 4, (
        "a reader of the old version keeps its files"
    )
    stream([{"id": 4}], "id long", lake)
    assert ids(lake, "delta") == list(range(5))
    orphan = lake / "orphan.parquet"
    orphan.write_bytes(b"")
    done = maintain(str(lake), target_bytes=1 << 20, retention_hours=0)
    assert done is not None and done.files_deleted >= 5
    assert not orphan.exists() and not any(os.path.exists(file) for file in old_files)
    assert ids(lake, "delta") == list(range(5))


def test_the_sink_has_its_table_compacted_every_few_batches(stream: Stream, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for batch in range(4):
        stream([{"id": batch}], "id long", lake, compactAfter=4)
    wait_until(lambda: len(DeltaTable(str(lake)).file_uris()) == 1, timeout_s=120)
    wait_until(lambda: "became 1" in (lake / "_moldau" / "maintenance.log").read_text(), timeout_s=120)
    assert ids(lake, "delta") == list(range(4))
    assert glob.glob(str(lake / "*.parquet"))
