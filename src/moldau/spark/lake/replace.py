"""Rows of a Delta table replaced by their keys, in one commit: files that hold such rows are written anew.

Files without any are left alone, and read no further than their key columns. A compaction that takes the same files
away at the same time makes one of the two commits fail, and this one is tried again on the table as it is then.

deltalake has a merge of its own; the files that it writes carry an Arrow schema of string views, over which a filter by
DuckDB or pandas fails. That is why this one is here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError

from moldau.spark.lake import delta, history
from moldau.spark.lake.files import FileLimits, TaskFiles
from moldau.spark.lake.options import LakeOptions, Transaction
from moldau.spark.lake.partitions import Partitioning, Values, unsafe_free
from moldau.spark.lake.source import LakeFile, row_group, table_files


def replace_rows(
    path: str,
    leaving: Any,
    arriving: Any,
    keys: Sequence[str],
    transaction: Transaction,
    partition_by: Sequence[str] = (),
) -> None:
    """Rows with the keys in `leaving` or `arriving` go, those of `arriving` come; nothing where it was done before."""
    for last_try in delta.tries():
        table = delta.open_table(path)
        if table is not None and delta.is_committed(table, transaction):
            return
        plan = delta.evolution(table, arriving.schema, partition_by, merge=True)
        writer = delta.DeltaWriter(path, partition_by, plan.rows)
        try:
            table = writer.prepare()
            fitting = arriving.rename_columns(plan.rows.names).cast(plan.rows)
            named = pa.concat_tables([leaving.select(keys).cast(_only(fitting, keys)), fitting.select(keys)])
            _replace(writer, table, Keys(named), fitting, transaction)
            return
        except CommitFailedError:
            if last_try:
                raise


def _only(table: Any, names: Sequence[str]) -> Any:
    return pa.schema([table.schema.field(name) for name in names])


class Keys:
    """A set of keys, each of one or several columns."""

    def __init__(self, rows: Any) -> None:
        self.names = rows.column_names
        self._rows = rows
        self._values = {name: rows.column(name).combine_chunks().unique() for name in self.names}

    def among(self, batch: Any) -> Any:
        """Where a batch's rows have one of the keys, as numpy's booleans."""
        found = np.ones(batch.num_rows, dtype=bool)
        for name, values in self._values.items():
            here = pc.is_in(batch.column(name), value_set=values.cast(batch.schema.field(name).type))
            found &= here.to_numpy(zero_copy_only=False).astype(bool)
        if len(self.names) == 1 or not found.any():
            return found
        some = pa.Table.from_batches([batch.select(self.names)]).filter(pa.array(found))
        codes = history.groups(pa.concat_tables([some, self._rows], promote_options="permissive"), self.names)
        found[found] = np.isin(codes[: some.num_rows], codes[some.num_rows :])
        return found


def rows_of(table: Any, keys: Keys) -> Any:
    """The table's rows with these keys."""
    schema = delta.arrow_schema(table)
    found = [
        row_group(parquet, group, schema, file).filter(pa.array(mask))
        for file in table_files(table)
        for parquet, group, mask in _groups(file, keys, schema)
        if mask.any()
    ]
    return pa.Table.from_batches(found, schema=schema)


def _groups(file: LakeFile, keys: Keys, schema: Any) -> Iterator[tuple[Any, int, Any]]:
    """A file's row groups with where their rows have one of the keys."""
    tested = pa.schema([schema.field(name) for name in keys.names])
    with pq.ParquetFile(file.path) as parquet:
        for group in range(parquet.num_row_groups):
            yield parquet, group, keys.among(row_group(parquet, group, tested, file))


def _replace(
    writer: delta.DeltaWriter, table: Any, keys: Keys, arriving: Any, transaction: Transaction
) -> None:
    schema = delta.arrow_schema(table)
    parts = Partitioning(tuple(table.metadata().partition_columns))
    attempt = uuid.uuid4().hex

    def name(values: Values, number: int) -> str:
        return os.path.join(
            unsafe_free(parts.columns, values),
            f"part-{transaction.version:06d}-{number:04d}-{attempt}.parquet",
        )

    defaults = LakeOptions(writer.path)
    limits = FileLimits(defaults.max_records_per_file, defaults.max_file_bytes, defaults.compression)
    files = TaskFiles(writer.path, parts.in_file(schema), limits, name)
    removed = []
    try:
        for file in table_files(table):
            if any(mask.any() for _, _, mask in _groups(file, keys, schema)):
                removed.append(file)
                for parquet, group, mask in _groups(file, keys, schema):
                    _write(files, parts, row_group(parquet, group, schema, file).filter(pa.array(~mask)))
        lacking = [field for field in schema if field.name not in arriving.column_names]
        for field in lacking:
            arriving = arriving.append_column(field, pa.nulls(arriving.num_rows, field.type))
        for batch in arriving.select(schema.names).to_batches():
            _write(files, parts, batch)
        written = files.close()
        if written or removed:
            writer.write(
                table, written, transaction, removed=[(file.path, file.partition) for file in removed]
            )
    except BaseException:
        if not _is_known(writer.path, transaction):
            files.discard()
        raise


def _write(files: TaskFiles, parts: Partitioning, batch: Any) -> None:
    for values, rows in parts.split(batch):
        files.write(values, rows)


def _is_known(path: str, transaction: Transaction) -> bool:
    table = delta.open_table(path)
    return table is not None and delta.is_committed(table, transaction)
