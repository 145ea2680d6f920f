"""The columns that records are made of, by the rules of Spark's connector: key?, value, headers?, topic?, partition?

Its KafkaWriter looks columns up by their exact names, takes string or binary for key and value, leaves out what it
does not know, and says what is wrong in sentences that are kept here word for word: a program may look for them. The
option `topic` wins over the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}
NULL = b"\x00null"
"""Stands for a null in a checksum."""


class BadRow(ValueError):
    """A row that no record can be made of."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row has what; None: the data have no such column."""

    topic: str | None
    """The topic of all rows: the option's; else it is in a column."""
    indexes: dict[str, int]

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> Columns:
        """ValueError with Spark's sentence where no records can be made of such rows."""
        indexes: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            if field.name in TYPES:
                indexes.setdefault(field.name, index)
        if topic is not None:
            indexes.pop("topic", None)
        elif "topic" not in indexes:
            raise ValueError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        for name, wanted in TYPES.items():
            if name in indexes:
                require_type(name, schema.fields[indexes[name]].dataType.simpleString(), wanted)
            elif name == "value":
                raise ValueError("Required attribute 'value' not found")
        return cls(topic, indexes)

    def rows(self, batch: pyarrow.RecordBatch) -> Rows:
        """The rows of a batch. BadRow for a null topic, a partition below zero, a header without a key."""
        return Rows(
            self.topic or text_column(batch, self.indexes["topic"]),
            bytes_column(batch, self.indexes.get("key")),
            bytes_column(batch, self.indexes["value"]) or [],
            headers_column(batch, self.indexes.get("headers")),
            partition_column(batch, self.indexes.get("partition")),
        )


class Rows(NamedTuple):
    """The rows of one batch, column by column; what is None, no row has."""

    topics: str | list[str]
    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]] | None] | None
    partitions: list[int] | None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:  # type: ignore[override]
        """(topic, value, key, partition, headers), row by row."""
        topics = repeat(self.topics) if isinstance(self.topics, str) else self.topics
        return zip(
            topics,
            self.values,
            repeat(None) if self.keys is None else self.keys,
            repeat(-1) if self.partitions is None else self.partitions,
            repeat(None) if self.headers is None else self.headers,
            strict=False,  # the constants never end
        )

    def checksum(self) -> int:
        """The sum of the rows' CRCs: equal for the same rows in another order, in other batches."""
        crcs: Any = repeat(0)
        if not isinstance(self.topics, str):
            crcs = map(crc32c, [topic.encode() for topic in self.topics], crcs)
        if self.keys is not None:
            crcs = map(crc32c, without_nulls(self.keys), crcs)
        if self.headers is not None:
            crcs = map(crc32c, [repr(headers).encode() for headers in self.headers], crcs)
        if self.partitions is not None:
            crcs = map(crc32c, [b"%d" % partition for partition in self.partitions], crcs)
        return sum(map(crc32c, without_nulls(self.values), crcs))


def require_type(name: str, found: str, wanted: tuple[str, ...]) -> None:
    if found not in wanted:
        raise ValueError(
            f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(wanted)}"
        )


def without_nulls(column: list[bytes | None]) -> list[bytes]:
    return [NULL if item is None else item for item in column]


def bytes_column(batch: pyarrow.RecordBatch, index: int | None) -> list[bytes | None] | None:
    import pyarrow as pa

    if index is None:
        return None
    column = batch.column(index)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def text_column(batch: pyarrow.RecordBatch, index: int) -> list[str]:
    column = batch.column(index)
    if column.null_count:
        raise BadRow(
            "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a "
            "default topic."
        )
    found: list[str] = column.to_pylist()
    return found


def partition_column(batch: pyarrow.RecordBatch, index: int | None) -> list[int] | None:
    """-1 where the partitioner is to choose."""
    if index is None:
        return None
    found = batch.column(index).to_pylist()
    for partition in found:
        if partition is not None and partition < 0:
            raise BadRow(
                f"Invalid partition: {partition}. Partition number should always be non-negative or null."
            )
    return [-1 if partition is None else partition for partition in found]


def headers_column(
    batch: pyarrow.RecordBatch, index: int | None
) -> list[list[tuple[str, bytes | None]] | None] | None:
    if index is None:
        return None
    return [
        None if headers is None else [header_of(header) for header in headers]
        for headers in batch.column(index).to_pylist()
    ]


def header_of(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise BadRow("Null header keys are not permitted")
    return header["key"], header["value"]
