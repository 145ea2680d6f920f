"""The rows of the source: the columns of Spark's own Kafka connector, all of them or those that are asked for.

A schema by the user leaves out what it does not name, and its `value` may be a string or a struct: then it is
decoded.
"""

from __future__ import annotations

import json
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
from moldau.spark.source.options import SourceOptions

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


CORRUPT: Final = "corruptValue"
"""The bytes of a value that is not of the option `valueFormat`; null for all others."""


def row_schema(options: SourceOptions) -> StructType | str:
    """The columns of the option `columns`, in its order; without it those of Spark's connector.

    As text where the option `valueSchema` is text: only Spark itself can read that.
    """
    names = options.columns or _default_columns(options)
    by_name = {name.lower(): name for name in (*COLUMNS, CORRUPT)}
    if strangers := [name for name in names if name.lower() not in by_name]:
        raise OptionError(
            f"Option 'columns' names {', '.join(strangers)}; the columns are {', '.join(COLUMNS)}"
        )
    names = tuple(by_name[name.lower()] for name in names)
    value = _value_type(options) if "value" in names else BinaryType()
    types: dict[str, DataType | str] = {**COLUMNS, CORRUPT: BinaryType(), "value": value}
    if isinstance(value, str):
        texts = {name: kind if isinstance(kind, str) else kind.simpleString() for name, kind in types.items()}
        return ", ".join(f"{name} {texts[name]}" for name in names)
    return StructType([StructField(name, types[name]) for name in names])


def _default_columns(options: SourceOptions) -> tuple[str, ...]:
    names = [name for name in COLUMNS if options.include_headers or name != HEADERS]
    shows_corrupt = (
        options.value_format not in (None, "binary")
        and options.dead_letter_topic is None
        and options.mode in (None, "PERMISSIVE")
    )
    return (*names, CORRUPT) if shows_corrupt else tuple(names)


def _value_type(options: SourceOptions) -> DataType | str:
    match options.value_format:
        case None | "binary":
            return BinaryType()
        case "string":
            return StringType()
    text = (options.value_schema or "").strip()
    if not text:
        raise OptionError(
            "valueFormat=json needs the option 'valueSchema', or a schema with a struct `value`"
        )
    if not text.startswith("{"):
        return text if text.upper().startswith("STRUCT<") else f"STRUCT<{text}>"
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError) as reason:
        raise OptionError(f"Option 'valueSchema' is no schema in JSON: {reason}") from None


def value_format(schema: StructType, options: SourceOptions) -> str | None:
    """How values are decoded for a schema, which is the user's or ours; None: they are bytes."""
    found = {field.name: field.dataType for field in schema.fields}
    for name, kind in found.items():
        if name not in (*COLUMNS, CORRUPT):
            raise OptionError(
                f"The schema has a column '{name}'; the data source 'moldau' has {', '.join(COLUMNS)}"
            )
        if name not in ("value", CORRUPT) and kind != COLUMNS[name]:
            raise OptionError(
                f"The schema's column '{name}' is of the type {kind.simpleString()}; it can be "
                f"{COLUMNS[name].simpleString()}"
            )
    decided = _format_of(found.get("value"))
    if options.value_format not in (None, decided) and "value" in found:
        raise OptionError(
            f"valueFormat={options.value_format} does not fit the schema's column 'value', which is of the type "
            f"{found['value'].simpleString()}"
        )
    wants_decoding = CORRUPT in found or options.dead_letter_topic is not None or options.mode is not None
    if decided == "binary" and wants_decoding:
        raise OptionError(
            f"'{CORRUPT}', 'deadLetterTopic' and 'mode' are for values that are decoded: they need a column 'value' "
            "that is a string or a struct"
        )
    return None if decided == "binary" else decided


def _format_of(kind: DataType | None) -> str:
    match kind:
        case None | BinaryType():
            return "binary"
        case StringType():
            return "string"
        case StructType():
            return "json"
    raise OptionError(
        f"The schema's column 'value' is of the type {kind.simpleString()}; it can be binary, string "
        "(valueFormat=string) or a struct (valueFormat=json)"
    )
