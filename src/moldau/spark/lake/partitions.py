"""Rows by partition: by day and hour of a time column, or by the values of columns.

`partitionByTime=c` adds the columns `date` and (unless the unit is day) `hour`, in UTC. Values are written in words as
the Delta protocol wants them; in a folder of Parquet they are part of the path, as in Hive: `date=2026-11-18/hour=3`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.options import PARQUET, BadOption, LakeOptions

DATE = "date"
HOUR = "hour"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ")

Values = tuple[str | None, ...]


@dataclass(frozen=True)
class Partitioning:
    """The columns whose values part a table, in order, and the time column that makes `date` and `hour`."""

    columns: tuple[str, ...] = ()
    time: str | None = None
    hours: bool = False

    def extend(self, schema: Any) -> Any:
        """The table's schema for rows of this schema: with `date` and `hour`."""
        made = (
            [pa.field(DATE, pa.date32()), pa.field(HOUR, pa.int32())][: 1 + self.hours] if self.time else []
        )
        return pa.schema([*schema, *made])

    def in_file(self, schema: Any) -> Any:
        """The columns that are in the files: all but the ones that part them."""
        return pa.schema([field for field in schema if field.name not in self.columns])

    def split(self, batch: Any) -> Iterator[tuple[Values, Any]]:
        """The rows of each partition, without the columns that part them, in their order."""
        if not self.columns:
            yield (), batch
            return
        batch = self._with_time(batch)
        keys = [batch.column(name) for name in self.columns]
        rest = batch.select([name for name in batch.schema.names if name not in self.columns])
        for values, rows in _groups(keys):
            yield values, rest if rows is None else rest.take(rows)

    def _with_time(self, batch: Any) -> Any:
        if self.time is None:
            return batch
        times = batch.column(self.time)
        batch = batch.append_column(DATE, times.cast(pa.date32(), safe=False))
        if self.hours:
            batch = batch.append_column(HOUR, pc.hour(times).cast(pa.int32()))
        return batch


def partitioning(options: LakeOptions, schema: Any) -> Partitioning:
    """The partitioning that the options ask for, over the rows' (canonical) schema."""
    names: dict[str, str] = {name.lower(): name for name in schema.names}

    def column(option: str, name: str) -> str:
        found = names.get(name.lower())
        if found is None:
            raise BadOption(f"{option}: there is no column {name}")
        return found

    columns = tuple(column("partitionBy", name) for name in options.partition_by)
    for name in columns:
        _require_plain_value(name, schema.field(name).type)
        if options.table_format == PARQUET and name[0] in "._":
            raise BadOption(f"partitionBy: readers of a folder skip what begins like {name}")
    if options.partition_by_time is None:
        if columns and len(columns) == len(schema.names):
            raise BadOption("partitionBy: no column is left to write into the files")
        return Partitioning(columns)
    time = column("partitionByTime", options.partition_by_time)
    kind = schema.field(time).type
    if not pa.types.is_timestamp(kind):
        raise BadOption(f"partitionByTime: column {time} is {kind}, not a timestamp")
    if time in columns:
        raise BadOption(f"partitionByTime: column {time} is in partitionBy as well")
    hours = options.partition_time_unit == "hour"
    made = (DATE, HOUR) if hours else (DATE,)
    for name in made:
        if name in names:
            raise BadOption(f"partitionByTime: the rows have a column {names[name]} already")
    return Partitioning((*columns, *made), time, hours)


def _require_plain_value(name: str, kind: Any) -> None:
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )
    if not plain:
        raise BadOption(
            f"partitionBy: column {name} is {kind}; choose whole numbers, strings, dates or booleans"
        )


def _groups(keys: Sequence[Any]) -> Iterator[tuple[Values, Any]]:
    """Each tuple of values with the positions of its rows, None where all rows have it."""
    if not len(keys[0]):
        return
    codes: Any = np.zeros(len(keys[0]), dtype=np.int64)
    encoded = [key.dictionary_encode(null_encoding="encode") for key in keys]
    for key in encoded:
        codes = codes * len(key.dictionary) + key.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # dense again, so that many columns do not overflow
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, after in zip(starts, [*starts[1:], len(order)], strict=True):
        first = int(order[start])
        values = tuple(in_words(key.dictionary[key.indices[first].as_py()].as_py()) for key in encoded)
        yield values, None if len(starts) == 1 else pa.array(order[start:after])


def in_words(value: object) -> str | None:
    """A partition's value as the Delta protocol writes it; an empty string is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)


def from_words(text: str | None, kind: Any) -> Any:
    """The Arrow scalar of type `kind` that a partition's value in words means."""
    if text is None:
        return pa.scalar(None, kind)
    return pa.scalar(text, pa.string()).cast(kind)


def folder_of(columns: Sequence[str], values: Values) -> str:
    """`date=2026-11-18/hour=3`, as Hive writes it, or an empty string."""
    return "/".join(f"{escape(name)}={escape(value)}" for name, value in zip(columns, values, strict=True))


def escape(text: str | None) -> str:
    if text is None:
        return NULL_FOLDER
    return "".join(
        char if char in PLAIN else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text
    )


def unsafe_free(columns: Sequence[str], values: Values) -> str:
    """The same for people: Delta keeps the values in its log, so that a folder's name need not say them exactly."""
    parts = (
        f"{name}={NULL_FOLDER if value is None else value}"
        for name, value in zip(columns, values, strict=True)
    )
    return "/".join(
        "".join(char if char in PLAIN or char == "=" else "_" for char in part)[:100] for part in parts
    )
