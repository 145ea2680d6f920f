"""A task's rows as Parquet files: at most so many rows and (about) so many bytes each, in bounded memory.

Rows wait per partition until they make a row group; all that wait together stay below `WAITING_BYTES_MAX`, and no more
than `OPEN_FILES_MAX` files are open, so that a task over many partitions takes more files, not more memory. A file's
size is looked at after each row group, so it may exceed its bound by one.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.spark.lake.partitions import Values

ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 1 << 20
WAITING_BYTES_MAX = 128 << 20
OPEN_FILES_MAX = 100
STATISTICS_COLUMNS_MAX = 32
"""As many columns have statistics as Delta gives them by default."""
STATISTICS_CHARS_MAX = 256


@dataclass(frozen=True)
class WrittenFile:
    """A closed file, by its path below the table's folder."""

    path: str
    partition: Values
    rows: int
    size: int
    stats: str
    """Counts, least and greatest values in the Delta protocol's JSON."""


@dataclass(frozen=True)
class FileLimits:
    rows: int
    size: int
    compression: str


@dataclass
class _Partition:
    values: Values
    batches: list[Any] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    writer: Any = None
    path: str = ""
    rows: int = 0
    metadata: list[Any] = field(default_factory=list)


class TaskFiles:
    """`write` rows, then `close` for what was written; `discard` removes it all."""

    def __init__(
        self, root: str, schema: Any, limits: FileLimits, name: Callable[[Values, int], str]
    ) -> None:
        self._root, self._schema, self._limits, self._name = root, schema, limits, name
        self._open: OrderedDict[Values, _Partition] = OrderedDict()
        self._waiting_bytes = 0
        self._numbered = 0
        self._paths: list[str] = []
        self._written: list[WrittenFile] = []

    def write(self, values: Values, batch: Any) -> None:
        """Take rows of one partition, in the files' schema."""
        for piece in self._pieces(values, batch):
            partition = self._partition(values)
            partition.batches.append(piece)
            partition.waiting_rows += piece.num_rows
            partition.waiting_bytes += piece.nbytes
            self._waiting_bytes += piece.nbytes
            if partition.waiting_bytes >= ROW_GROUP_BYTES or partition.waiting_rows >= ROW_GROUP_ROWS:
                self._flush(partition)
            if partition.rows + partition.waiting_rows >= self._limits.rows:
                self._finish(partition)
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda waiting: waiting.waiting_bytes))

    def close(self) -> list[WrittenFile]:
        for partition in list(self._open.values()):
            self._finish(partition)
        return self._written

    def discard(self) -> None:
        """Leave nothing behind, as far as the disk allows."""
        for partition in self._open.values():
            if partition.writer is not None:
                try:
                    partition.writer.close()
                except (OSError, RuntimeError, pa.ArrowException):
                    partition.writer.is_open = False  # or it would try, and fail, once more when it is freed
        self._open.clear()
        for path in self._paths:
            try:
                os.unlink(os.path.join(self._root, path))
            except OSError:
                pass

    def _pieces(self, values: Values, batch: Any) -> Iterator[Any]:
        """The batch in slices that end where a file is full of rows."""
        while batch.num_rows:
            known = self._open.get(values)
            space = self._limits.rows - (known.rows + known.waiting_rows if known else 0)
            yield batch.slice(0, space)
            batch = batch.slice(space)

    def _partition(self, values: Values) -> _Partition:
        partition = self._open.pop(values, None)
        if partition is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(next(iter(self._open.values())))
            partition = _Partition(values)
        self._open[values] = partition
        return partition

    def _flush(self, partition: _Partition) -> None:
        """The waiting rows become one row group."""
        if not partition.waiting_rows:
            return
        if partition.writer is None:
            self._start(partition)
        table = pa.Table.from_batches(partition.batches, schema=self._schema)
        partition.writer.write_table(table, row_group_size=table.num_rows)
        self._waiting_bytes -= partition.waiting_bytes
        partition.rows += partition.waiting_rows
        partition.batches, partition.waiting_rows, partition.waiting_bytes = [], 0, 0
        if os.path.getsize(os.path.join(self._root, partition.path)) >= self._limits.size:
            self._finish(partition)

    def _start(self, partition: _Partition) -> None:
        partition.path = self._name(partition.values, self._numbered)
        self._numbered += 1
        self._paths.append(partition.path)
        full = os.path.join(self._root, partition.path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        partition.writer = pq.ParquetWriter(
            full,
            self._schema,
            compression=self._limits.compression,
            metadata_collector=partition.metadata,
        )

    def _finish(self, partition: _Partition) -> None:
        """Close the file; the partition's next rows begin another."""
        self._flush(partition)
        if partition.writer is None:
            self._open.pop(partition.values, None)
            return
        partition.writer.close()
        partition.writer = None
        self._open.pop(partition.values, None)
        self._written.append(
            WrittenFile(
                path=partition.path,
                partition=partition.values,
                rows=partition.rows,
                size=os.path.getsize(os.path.join(self._root, partition.path)),
                stats=statistics(partition.metadata[0], partition.rows),
            )
        )


def statistics(metadata: Any, rows: int) -> str:
    """A file's statistics in the Delta protocol's JSON, from its Parquet footer.

    Floats have none (NaN is the greatest to Spark and left out by Parquet), nor have columns within columns.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(min(metadata.num_columns, STATISTICS_COLUMNS_MAX)):
        chunks = [metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)]
        name = chunks[0].path_in_schema
        known = [chunk.statistics for chunk in chunks]
        if (
            metadata.schema.column(column).max_repetition_level
            or metadata.schema.column(column).max_definition_level > 1
        ):
            continue
        if all(stats is not None and stats.has_null_count for stats in known):
            nulls[name] = sum(stats.null_count for stats in known)
        bounds = [
            (_bound(stats.min), _bound(stats.max))
            for stats in known
            if stats is not None and stats.has_min_max
        ]
        complete = len(bounds) == len(known) and all(None not in bound for bound in bounds)
        if complete:
            least[name] = min(low for low, _ in bounds)
            greatest[name] = max(high for _, high in bounds)
    return json.dumps(
        {"numRecords": rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        separators=(",", ":"),
    )


def _bound(value: Any) -> Any:
    """A least or greatest value for JSON; None where it cannot be told without doubt."""
    if isinstance(value, bool | float | bytes):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= STATISTICS_CHARS_MAX else None
    if hasattr(value, "hour"):
        text: str = value.isoformat(timespec="microseconds").removesuffix("+00:00")
        return text + "Z" if value.tzinfo is not None else text
    if hasattr(value, "year"):
        return value.isoformat()
    return None
