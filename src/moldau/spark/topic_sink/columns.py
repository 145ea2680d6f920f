"""The columns that records are made of, by the rules of Spark's connector: key?, value, headers?, topic?, partition?

Its KafkaWriter looks columns up by their exact names, takes string or binary for key and value, leaves out what it
does not know, and says what is wrong in sentences that are kept here word for word: a program may look for them. The
option `topic` wins over the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.spark.topic_sink.librdkafka import ANY_PARTITION
from moldau.spark.topic_sink.rows import Cells, HeaderCells, Rows

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
            Cells.of_arrow(batch.column(key)) if (key := self.indexes.get("key")) is not None else None,
            Cells.of_arrow(batch.column(self.indexes["value"])),
            headers_column(batch, self.indexes.get("headers")),
            partition_column(batch, self.indexes.get("partition")),
        )


def require_type(name: str, found: str, wanted: tuple[str, ...]) -> None:
    if found not in wanted:
        raise ValueError(
            f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(wanted)}"
        )


def text_column(batch: pyarrow.RecordBatch, index: int) -> list[str]:
    column = batch.column(index)
    if column.null_count:
        raise BadRow(
            "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a "
            "default topic."
        )
    found: list[str] = column.to_pylist()
    return found


def partition_column(batch: pyarrow.RecordBatch, index: int | None) -> Any:
    if index is None:
        return None
    found = batch.column(index).fill_null(ANY_PARTITION).to_numpy()
    given = batch.column(index).drop_null().to_numpy()
    if len(given) and given.min() < 0:
        raise BadRow(
            f"Invalid partition: {given[given < 0][0]}. Partition number should always be non-negative or null."
        )
    return found


def headers_column(batch: pyarrow.RecordBatch, index: int | None) -> HeaderCells | None:
    if index is None:
        return None
    return HeaderCells.of_values(
        [
            None if headers is None else [header_of(header) for header in headers]
            for headers in batch.column(index).to_pylist()
        ]
    )


def header_of(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise BadRow("Null header keys are not permitted")
    return header["key"], header["value"]
