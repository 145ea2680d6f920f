"""Reading back what the lake holds: a snapshot in tasks, or a Delta table version after version as a stream.

A snapshot is one version of a Delta table (`versionAsOf`, `timestampAsOf`), or what a folder of Parquet shows now.

A stream begins with the table as it is (or with `startingVersion`) and goes on with the rows of each later commit.
Commits that only rearrange rows (compaction) bring none; one that changes or deletes rows ends the stream with an
error, unless `skipChangeCommits=true` passes over it. Every offset carries where the query began, because Spark asks
for the first offset anew when it runs batch 0 again, and the table has grown by then.

Left out: tables with deletion vectors or column mapping (refused by name), filters (every file is read).
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from moldau.spark.lake import delta, folder
from moldau.spark.lake.options import PARQUET, BadOption, LakeOptions
from moldau.spark.lake.partitions import NULL_FOLDER, from_words, in_words

TASK_BYTES = 64 << 20
READ_ROWS = 16_384
READER_FEATURES = frozenset({"timestampNtz"})
VERSIONS_CACHED = 256

Offset = dict[str, Any]


class TableChanged(RuntimeError):
    """A stream met a commit that it cannot express as new rows."""


@dataclass(frozen=True)
class LakeFile:
    """A file of a table, by its full path, with the values of its partition in words."""

    path: str
    partition: tuple[tuple[str, str | None], ...]
    size: int


class FilesPartition(InputPartition):
    def __init__(self, files: Sequence[LakeFile]) -> None:
        self.files = list(files)


def table_schema(options: LakeOptions) -> Any:
    """The table's schema in Spark's types."""
    if options.table_format == PARQUET:
        return from_arrow_schema(_folder(options)[0])
    return from_arrow_schema(delta.arrow_schema(_table(options)))


def _table(options: LakeOptions) -> Any:
    table = delta.open_table(options.path)
    if table is None:
        raise BadOption(f"path={options.path}: there is no Delta table")
    protocol = table.protocol()
    other = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        other.append("columnMapping")
    if other:
        raise BadOption(
            f"path={options.path}: the table uses {', '.join(other)}, which the lake does not read"
        )
    if options.version_as_of is not None:
        table.load_as_version(options.version_as_of)
    elif options.timestamp_as_of is not None:
        table.load_as_version(options.timestamp_as_of)
    return table


def _folder(options: LakeOptions) -> tuple[Any, list[str]]:
    known = folder.stored_schema(options.path)
    if known is None:
        raise BadOption(f"path={options.path}: there is no folder that the lake has written")
    return known


def snapshot(options: LakeOptions) -> list[LakeFile]:
    """The files that hold the table's rows, in a lasting order."""
    if options.table_format == PARQUET:
        return [_folder_file(options.path, path) for path in folder.visible_files(options.path)]
    return table_files(_table(options))


def table_files(table: Any) -> list[LakeFile]:
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True))
    root = delta.root_of(table)
    files = []
    for row in actions.select(["path", "size_bytes", *(f"partition.{name}" for name in columns)]).to_pylist():
        values = tuple((name, in_words(row[f"partition.{name}"])) for name in columns)
        files.append(
            LakeFile(os.path.join(root, urllib.parse.unquote(row["path"])), values, row["size_bytes"])
        )
    return sorted(files, key=lambda file: file.path)


def _folder_file(root: str, path: str) -> LakeFile:
    values = []
    for part in path.split("/")[:-1]:
        name, _, value = part.partition("=")
        values.append(
            (urllib.parse.unquote(name), None if value == NULL_FOLDER else urllib.parse.unquote(value))
        )
    full = os.path.join(root, path)
    return LakeFile(full, tuple(values), os.path.getsize(full))


def in_tasks(files: Sequence[LakeFile]) -> list[FilesPartition]:
    """Small files together, so that a task has about `TASK_BYTES` to read."""
    tasks: list[list[LakeFile]] = []
    size = TASK_BYTES
    for file in files:
        if size + file.size > TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += file.size
    return [FilesPartition(task) for task in tasks]


def read_files(files: Sequence[LakeFile], schema: Any) -> Iterator[Any]:
    """The rows of files as Arrow batches of `schema`; what a file lacks is null."""
    for file in files:
        values = dict(file.partition)
        with pq.ParquetFile(file.path) as parquet:
            there = set(parquet.schema_arrow.names)
            wanted = [name for name in schema.names if name in there and name not in values]
            for batch in parquet.iter_batches(batch_size=READ_ROWS, columns=wanted):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield _row_batch(columns, batch.num_rows, schema, values)


def _row_batch(there: Mapping[str, Any], count: int, schema: Any, values: Mapping[str, str | None]) -> Any:
    """Columns that are there, the partition's values, and nulls for the rest, as `schema` wants them."""
    columns = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(from_words(values[field.name], field.type), count))
        elif field.name in there:
            columns.append(there[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def row_group(parquet: Any, group: int, schema: Any, file: LakeFile) -> Any:
    """One row group of a file as an Arrow batch of `schema`."""
    values = dict(file.partition)
    there = set(parquet.schema_arrow.names)
    names = [name for name in schema.names if name in there and name not in values]
    table = parquet.read_row_group(group, columns=names).combine_chunks()
    columns = {name: table.column(name).combine_chunks() for name in names}
    return _row_batch(columns, parquet.metadata.row_group(group).num_rows, schema, values)


class LakeReader(DataSourceReader):
    """A batch: all rows of one version."""

    def __init__(self, options: LakeOptions, schema: Any) -> None:
        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[FilesPartition]:
        return in_tasks(snapshot(self.options)) or [FilesPartition([])]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_files(partition.files, self.schema)


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: a snapshot's files, then those of one version after another.

    Offset: `first`, where the query began (as a snapshot, where `snapshot`); `version` and `index`, the files of that
    version (or snapshot) that come next.
    """

    def __init__(self, options: LakeOptions, schema: Any) -> None:
        if options.table_format == PARQUET:
            raise BadOption('a folder of Parquet is read as a stream by Spark itself: format("parquet")')
        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._target: int | None = None
        self._checked = False
        self._cache: OrderedDict[int, list[LakeFile]] = OrderedDict()
        self._snapshot: tuple[int, list[LakeFile]] | None = None

    def initialOffset(self) -> Offset:
        start = self.options.starting_version
        if start is None:
            return self._first(True, _table(self.options).version())
        return self._first(False, _table(self.options).version() + 1 if start == "latest" else int(start))

    def _first(self, is_snapshot: bool, version: int) -> Offset:
        return {"snapshot": is_snapshot, "first": version, "version": version, "index": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_files_per_trigger is not None:
            return ReadMaxFiles(self.options.max_files_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _table(self.options).version()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._check_log(start)
        files_left = limit.max_files if isinstance(limit, ReadMaxFiles) else sys.maxsize
        bytes_left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else sys.maxsize
        end = start
        for taken, (offset, file) in enumerate(self._after(start, None)):
            files_left, bytes_left = files_left - 1, bytes_left - file.size
            if taken and min(files_left, bytes_left) < 0:
                break
            end = offset
        return end

    def partitions(self, start: Offset, end: Offset) -> list[FilesPartition]:
        if start["first"] != end["first"]:
            start = self._first(end["snapshot"], end["first"])
        return in_tasks([file for _, file in self._after(start, end)])

    def read(self, partition: Any) -> Iterator[Any]:
        return read_files(partition.files, self.schema)

    def _after(self, start: Offset, end: Offset | None) -> Iterator[tuple[Offset, LakeFile]]:
        """Files from `start` on, each with the offset after it; up to `end`, or to what there is."""
        version, index = start["version"], start["index"]
        while end is None or (version, index) < (end["version"], end["index"]):
            if end is None and self._target is not None and version > self._target:
                return
            files = self._files_of(start, version)
            if files is None:
                return
            stop = len(files) if end is None or version < end["version"] else end["index"]
            for at in range(index, stop):
                yield {**start, "version": version, "index": at + 1}, files[at]
            version, index = version + 1, 0

    def _files_of(self, start: Offset, version: int) -> list[LakeFile] | None:
        if start["snapshot"] and version == start["first"]:
            if self._snapshot is None or self._snapshot[0] != version:
                self._snapshot = version, table_files(DeltaTable(self.options.path, version=version))
            return self._snapshot[1]
        if version not in self._cache:
            for _, actions in delta.log_versions(self.options.path, version):
                self._cache[version] = self._added(version, actions)
                break
            else:
                return None
            while len(self._cache) > VERSIONS_CACHED:
                self._cache.popitem(last=False)
        return self._cache[version]

    def _added(self, version: int, actions: list[dict[str, Any]]) -> list[LakeFile]:
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            if self.options.skip_change_commits:
                return []
            raise TableChanged(
                f"{self.options.path}: version {version} changes or deletes rows, which a stream of new rows"
                " cannot show (skipChangeCommits=true passes over such versions)"
            )
        return [
            LakeFile(
                os.path.join(self.options.path, urllib.parse.unquote(action["add"]["path"])),
                tuple(action["add"]["partitionValues"].items()),
                action["add"]["size"],
            )
            for action in actions
            if "add" in action and action["add"].get("dataChange", True)
        ]

    def _check_log(self, start: Offset) -> None:
        """Versions that the table's log has forgotten are an error, not silence."""
        if self._checked:
            return
        next_version = start["version"] + (
            1 if start["snapshot"] and start["version"] == start["first"] else 0
        )
        known = os.path.exists(os.path.join(self.options.path, "_delta_log", f"{next_version:020d}.json"))
        if not known and _table(self.options).version() >= next_version:
            raise TableChanged(f"{self.options.path}: version {next_version} is no longer in the table's log")
        self._checked = True
