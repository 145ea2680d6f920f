"""Rows of another schema join a table: columns are added, numbers widened, conflicts named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from moldau.spark.lake.files import FileLimits, TaskFiles
from moldau.spark.lake.folder import visible_files
from moldau.spark.lake.options import BadOption, LakeOptions, Transaction
from moldau.spark.lake.schema import SchemaConflict, canonical, evolve
from moldau.spark.lake.sink import Lake
from moldau.spark.lake.source import read_files, snapshot, table_schema
from spark import delta_reader

both = pytest.mark.parametrize("table_format", ["delta", "parquet"])
versions = iter(range(1000))


def add(path: Path, table_format: str, rows: list[dict[str, Any]], schema: pa.Schema, **options: Any) -> None:
    lake = Lake(LakeOptions(str(path), table_format, **options), from_arrow_schema(schema), overwrite=False)
    transaction = Transaction("test", next(versions))
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    lake.commit([lake.write(iter([batch]), transaction, 0)], transaction, keep_once=True)


def rows_of(path: Path, table_format: str) -> list[dict[str, Any]]:
    """Through the lake's own reader; Delta's rows through deltalake's as well."""
    options = LakeOptions(str(path), table_format)
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(table_schema(options), timezone="UTC")
    rows = [row for batch in read_files(snapshot(options), schema) for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["id"])
    if table_format == "delta":
        assert rows == sorted(delta_reader.rows_of(path), key=lambda row: row["id"])
    return rows


ID = pa.field("id", pa.int64())


@both
def test_new_columns_are_added_and_missing_ones_are_null(tmp_path: Path, table_format: str) -> None:
    deep = pa.struct([("x", pa.int32())])
    deeper = pa.struct([("x", pa.int32()), ("y", pa.string())])
    add(tmp_path, table_format, [{"id": 1, "deep": {"x": 1}}], pa.schema([ID, ("deep", deep)]))
    add(
        tmp_path,
        table_format,
        [{"ID": 2, "name": "b"}],
        pa.schema([("ID", pa.int64()), ("name", pa.string())]),
    )
    add(tmp_path, table_format, [{"id": 3, "deep": {"x": 3, "y": "c"}}], pa.schema([ID, ("deep", deeper)]))
    add(tmp_path, table_format, [{"id": 4, "deep": {"x": 4}}], pa.schema([ID, ("deep", deep)]))
    assert rows_of(tmp_path, table_format) == [
        {"id": 1, "deep": {"x": 1, "y": None}, "name": None},
        {"id": 2, "deep": None, "name": "b"},
        {"id": 3, "deep": {"x": 3, "y": "c"}, "name": None},
        {"id": 4, "deep": {"x": 4, "y": None}, "name": None},
    ]


@both
def test_narrower_numbers_are_widened_on_the_way_in(tmp_path: Path, table_format: str) -> None:
    add(tmp_path, table_format, [{"id": 1, "n": 1 << 40}], pa.schema([ID, ("n", pa.int64())]))
    add(tmp_path, table_format, [{"id": 2, "n": 7}], pa.schema([ID, ("n", pa.int16())]))
    assert [row["n"] for row in rows_of(tmp_path, table_format)] == [1 << 40, 7]


def test_wider_numbers_widen_a_delta_table(tmp_path: Path) -> None:
    for at in range(3):
        add(
            tmp_path,
            "delta",
            [{"id": at, "n": at, "p": "a"}],
            pa.schema([ID, ("n", pa.int32()), ("p", pa.string())]),
            partition_by=("p",),
        )
    wide = pa.schema([ID, ("n", pa.int64()), ("p", pa.string()), ("new", pa.string())])
    add(tmp_path, "delta", [{"id": 3, "n": 1 << 40, "p": "b", "new": "x"}], wide, partition_by=("p",))
    assert [row["n"] for row in rows_of(tmp_path, "delta")] == [0, 1, 2, 1 << 40]
    assert DeltaTable(str(tmp_path)).metadata().partition_columns == ["p"]


@both
@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (pa.field("n", pa.string()), "column n is int32 in the table and string in the rows"),
        (pa.field("n", pa.struct([("x", pa.int32())])), "column n is int32 in the table and struct"),
        (pa.field("n", pa.float64()), "column n is int32 in the table and double in the rows"),
    ],
)
def test_conflicts_name_the_column(
    tmp_path: Path, table_format: str, second: pa.Field, complaint: str
) -> None:
    add(tmp_path, table_format, [{"id": 1, "n": 1}], pa.schema([ID, ("n", pa.int32())]))
    with pytest.raises(SchemaConflict, match=complaint):
        add(tmp_path, table_format, [], pa.schema([ID, second]))
    assert len(rows_of(tmp_path, table_format)) == 1


def test_a_folder_does_not_widen_what_its_files_hold(tmp_path: Path) -> None:
    add(tmp_path, "parquet", [{"id": 1, "n": 1}], pa.schema([ID, ("n", pa.int32())]))
    with pytest.raises(SchemaConflict, match="column n is narrower in the folder's files"):
        add(tmp_path, "parquet", [], pa.schema([ID, ("n", pa.int64())]))


@both
def test_without_merge_schema_the_table_stays_as_it_is(tmp_path: Path, table_format: str) -> None:
    add(tmp_path, table_format, [{"id": 1}], pa.schema([ID]), merge_schema=False)
    with pytest.raises(SchemaConflict, match=r"a narrower one: n \(mergeSchema=true"):
        add(tmp_path, table_format, [], pa.schema([ID, ("n", pa.int64())]), merge_schema=False)


@both
def test_a_table_keeps_its_partitions(tmp_path: Path, table_format: str) -> None:
    schema = pa.schema([ID, ("p", pa.string())])
    add(tmp_path, table_format, [{"id": 1, "p": "x"}], schema, partition_by=("p",))
    with pytest.raises(SchemaConflict, match=r"is partitioned by \['p'\], the rows by nothing"):
        add(tmp_path, table_format, [], schema)


@both
def test_rows_written_before_the_table_changed_are_refused(tmp_path: Path, table_format: str) -> None:
    add(tmp_path, table_format, [{"id": 1}], pa.schema([ID]))
    narrow = pa.schema([ID, ("n", pa.int32())])
    lake = Lake(LakeOptions(str(tmp_path), table_format), from_arrow_schema(narrow), overwrite=False)
    transaction = Transaction("slow", 0)
    message = lake.write(
        iter([pa.RecordBatch.from_pylist([{"id": 2, "n": 2}], schema=narrow)]), transaction, 0
    )
    add(tmp_path, table_format, [{"id": 3, "n": 3}], pa.schema([ID, ("n", pa.int64())]))
    with pytest.raises(SchemaConflict, match="got other columns while this batch was written"):
        lake.commit([message], transaction, keep_once=True)
    assert [row["id"] for row in rows_of(tmp_path, table_format)] == [1, 3]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"partition_by": ("x",)}, "partitionBy: there is no column x"),
        ({"partition_by": ("f",)}, "partitionBy: column f is double"),
        ({"partition_by_time": "id"}, "partitionByTime: column id is int64, not a timestamp"),
        ({"partition_by_time": "t"}, "the rows have a column Hour already"),
        ({"partition_by": ("id", "f", "t", "Hour")}, "partitionBy: column f is double"),
    ],
)
def test_partitions_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    schema = pa.schema([ID, ("f", pa.float64()), ("t", pa.timestamp("us", "UTC")), ("Hour", pa.int32())])
    with pytest.raises(BadOption, match=complaint):
        add(tmp_path, "delta", [], schema, **options)


def test_a_type_that_delta_lacks_is_refused_by_the_columns_name(tmp_path: Path) -> None:
    with pytest.raises(SchemaConflict, match="column span: a Delta table has no type for duration"):
        add(tmp_path, "delta", [], pa.schema([ID, ("span", pa.duration("us"))]))


def test_two_columns_with_one_name_are_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    with pytest.raises(SchemaConflict, match="column A is there twice"):
        evolve(canonical(schema), canonical(schema))


def test_a_task_over_many_partitions_takes_files_and_not_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.lake.files.OPEN_FILES_MAX", 4)
    monkeypatch.setattr("moldau.spark.lake.files.WAITING_BYTES_MAX", 4096)
    schema = pa.schema([("id", pa.int64())])
    files = TaskFiles(
        str(tmp_path), schema, FileLimits(1 << 20, 1 << 20, "zstd"), lambda values, n: f"{n}.parquet"
    )
    for turn in range(40):
        files.write((str(turn % 8),), pa.RecordBatch.from_pydict({"id": list(range(100))}, schema=schema))
        assert len(files._open) <= 4 and files._waiting_bytes <= 4096 + 800
    written = files.close()
    assert sum(file.rows for file in written) == 4000 and len(written) > 8
    assert sorted(visible_files(str(tmp_path))) == sorted(file.path for file in written)


def test_delta_skips_files_by_their_statistics_and_loses_no_row(tmp_path: Path) -> None:
    for at in range(4):
        add(
            tmp_path,
            "delta",
            [{"id": at * 10 + n, "s": f"{at}{n}"} for n in range(10)],
            pa.schema([ID, ("s", pa.string())]),
        )
    dataset = delta_reader.dataset_of(tmp_path)
    wanted = pa.compute.field("id") == 25
    assert len(list(dataset.get_fragments(filter=wanted))) == 1
    assert dataset.to_table(filter=wanted).to_pylist() == [{"id": 25, "s": "25"}]
    assert dataset.to_table(filter=pa.compute.field("s") >= "30").num_rows == 10
