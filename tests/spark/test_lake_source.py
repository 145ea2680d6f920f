"""Reading the lake back: versions, streams over a table that grows, and what a stream refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from moldau.spark.lake import options
from moldau.spark.lake.maintenance import maintain
from moldau.spark.lake.source import LakeStreamReader, TableChanged
from spark import delta_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(spark: SparkSession, path: Path, first: int, last: int, **settings: Any) -> None:
    writer = spark.range(first, last, numPartitions=1).write.format("moldau_lake").mode("append")
    writer.options(**settings).save(str(path))


def copy(spark: SparkSession, path: Path, checkpoint: Path, **settings: Any) -> list[int]:
    """What a stream over the table has brought so far, after it has caught up."""
    target = checkpoint / "copy"
    frame = spark.readStream.format("moldau_lake").options(**settings).load(str(path))
    query = (
        frame.writeStream.format("moldau_lake")
        .option("checkpointLocation", str(checkpoint / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination(120)
    return sorted(delta_reader.table_of(target)["id"].to_pylist())


def test_an_older_version_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, 0, 5)
    write(spark, tmp_path, 5, 9)
    read = spark.read.format("moldau_lake")
    assert read.load(str(tmp_path)).count() == 9
    assert read.option("versionAsOf", 1).load(str(tmp_path)).count() == 5
    with pytest.raises(Exception, match="there is no Delta table"):
        spark.read.format("moldau_lake").load(str(tmp_path / "elsewhere"))


def test_a_stream_brings_the_table_and_then_what_is_added(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for at in range(3):
        write(spark, lake, at * 10, at * 10 + 10)
    assert copy(spark, lake, tmp_path / "all") == list(range(30))
    assert copy(spark, lake, tmp_path / "by-file", maxFilesPerTrigger=1) == list(range(30))
    maintain(str(lake), 1 << 20, 168)
    assert copy(spark, lake, tmp_path / "all") == list(range(30)), "compaction brings no rows"
    write(spark, lake, 30, 40)
    assert copy(spark, lake, tmp_path / "all") == list(range(40))
    assert copy(spark, lake, tmp_path / "by-file", maxFilesPerTrigger=1) == list(range(40))
    assert DeltaTable(str(tmp_path / "by-file" / "copy")).version() == 4, (
        "one commit makes the table, one is for each file"
    )
    assert copy(spark, lake, tmp_path / "late", startingVersion=3) == list(range(20, 40))


def reader(path: Path, **given: str) -> LakeStreamReader:
    from pyspark.sql.types import LongType, StructType

    return LakeStreamReader(options.parse({"path": str(path), **given}), StructType().add("id", LongType()))


def rows_between(stream: LakeStreamReader, start: Any, end: Any) -> list[int]:
    return sorted(
        value
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for value in batch["id"].to_pylist()
    )


@pytest.mark.parametrize("starting", [{}, {"startingVersion": "latest"}])
def test_a_first_batch_that_is_run_again_brings_the_same_rows(
    spark: SparkSession, tmp_path: Path, starting: dict[str, str]
) -> None:
    """Spark asks a new process for the first offset, though the batch's end is in the checkpoint already."""
    write(spark, tmp_path, 0, 10)
    stream = reader(tmp_path, **starting)
    start = stream.initialOffset()
    write(spark, tmp_path, 10, 20)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    expected = rows_between(stream, start, end)
    assert expected == (list(range(10, 20)) if starting else list(range(20)))
    write(spark, tmp_path, 20, 30)
    again = reader(tmp_path, **starting)
    assert rows_between(again, again.initialOffset(), end) == expected
    assert rows_between(again, end, again.latestOffset(end, again.getDefaultReadLimit())) == list(
        range(20, 30)
    )


def test_a_stream_ends_at_deleted_rows_unless_it_may_pass_over_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    write(spark, lake, 0, 10)
    stream = reader(lake)
    start = stream.initialOffset()
    DeltaTable(str(lake)).delete("id < 5")
    write(spark, lake, 10, 20)
    with pytest.raises(TableChanged, match="version 2 changes or deletes rows"):
        stream.latestOffset(start, stream.getDefaultReadLimit())
    lenient = reader(lake, skipChangeCommits="true")
    end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
    assert rows_between(lenient, start, end) == list(range(20))


def test_versions_that_the_log_has_forgotten_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    for at in range(3):
        write(spark, tmp_path, at, at + 1)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    stream = reader(tmp_path, startingVersion="1")
    with pytest.raises(TableChanged, match="version 1 is no longer in the table's log"):
        stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())


def test_tables_that_the_lake_cannot_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path, 0, 1)
    from deltalake import TableFeatures

    DeltaTable(str(tmp_path)).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(Exception, match="the table uses deletionVectors, which the lake does not read"):
        spark.read.format("moldau_lake").load(str(tmp_path))
