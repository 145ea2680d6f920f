"""The rows of the source: the columns of Spark's own Kafka connector, all of them or those that are asked for."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.spark.source.errors import OptionError

HEADERS: Final = "headers"
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def row_schema(columns: tuple[str, ...] | None, include_headers: bool) -> StructType:
    """The columns of the option `columns`, in its order; without it those of Spark's connector."""
    names = columns or tuple(name for name in COLUMNS if include_headers or name != HEADERS)
    by_name = {name.lower(): name for name in COLUMNS}
    if strangers := [name for name in names if name.lower() not in by_name]:
        raise OptionError(
            f"Option 'columns' names {', '.join(strangers)}; the columns are {', '.join(COLUMNS)}"
        )
    return StructType([StructField(by_name[name.lower()], COLUMNS[by_name[name.lower()]]) for name in names])


def check_schema(schema: StructType) -> None:
    """A schema by the user has some of the columns, with their types."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise OptionError(
                f"The schema has a column '{field.name}'; the data source 'moldau' has {', '.join(COLUMNS)}"
            )
        if field.dataType != COLUMNS[field.name]:
            raise OptionError(
                f"The schema's column '{field.name}' is of the type {field.dataType.simpleString()}; it can be "
                f"{COLUMNS[field.name].simpleString()}"
            )
