"""How a statement reads a topic: the options of the source and the expressions that make columns of its rows.

Plain values, apart from Spark, so that the same reading can be run here and be written into a project's file.

A table's columns are the fields of its JSON, or `value`. What a record has besides are metadata columns, which a
statement gets when it names them: `SELECT *` shows the fields alone, and what is not named is not even read.

    _key _topic _partition _offset _timestamp _headers     of the record
    _corrupt                                               the text of a value that is not of the table's format
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.spark.sql.inference import Format, Shape, quoted

TASK_RECORDS: Final = 500_000
"""Of a batch query: what one task reads, so that a partition of any size is read by all cores, and in pieces."""
VALUE: Final = "value"
METADATA: Final = {
    "_key": ("key", "CAST(key AS STRING)", "STRING"),
    "_topic": ("topic", "topic", "STRING"),
    "_partition": ("partition", "partition", "INT"),
    "_offset": ("offset", "offset", "BIGINT"),
    "_timestamp": ("timestamp", "timestamp", "TIMESTAMP"),
    "_headers": ("headers", "headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    "_corrupt": ("corruptValue", "CAST(corruptValue AS STRING)", "STRING"),
}
"""Each with the source's column, the expression and the type."""
_NOT_BY_ARROW = re.compile(
    r"\b(MAP|BINARY|INTERVAL|VARIANT|CHAR|VARCHAR|TIMESTAMP_NTZ|TIME)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Table:
    """A topic as SQL sees it."""

    name: str
    topic: str
    shape: Shape
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the source, as declared: `startingOffsets`, `kafka.isolation.level` and the like."""
    is_declared: bool = False
    text_column: str = VALUE
    """Of text and bytes: what the one column is called."""

    def columns(self) -> list[tuple[str, str]]:
        """Names and types, without the metadata."""
        if self.shape.format is Format.JSON:
            return list(self.shape.fields)
        return [(self.text_column, "STRING" if self.shape.format is Format.STRING else "BINARY")]

    def metadata(self) -> list[tuple[str, str]]:
        """Those that no field of its own hides, and that its format has."""
        own = {name.casefold() for name, _ in self.columns()}
        return [
            (name, "BINARY" if name == "_key" and not self.shape.text_keys else kind)
            for name, (_, _, kind) in METADATA.items()
            if name not in own and (name != "_corrupt" or self.shape.format is not Format.BINARY)
        ]


@dataclass(frozen=True, slots=True)
class Read:
    """One reading of a topic: Spark's reader with these options, then each of the selections."""

    table: str
    topic: str
    is_stream: bool
    options: Mapping[str, str]
    selections: tuple[tuple[str, ...], ...]


def declared_shape(columns: Collection[tuple[str, str]], format: Format) -> Shape:
    exact = not any(_NOT_BY_ARROW.search(kind) for _, kind in columns)
    return Shape(format, tuple(columns), exact)


def read_of(
    table: Table,
    kafka: Mapping[str, str],
    is_stream: bool,
    starting: str,
    mentioned: Collection[str],
    needed: Collection[str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Read:
    """`kafka` are the client's settings, `starting` where a stream begins unless its options say so.

    `needed` are the only names that the statement can need, in lower case; None: any of the fields.
    """
    fields = [name for name, _ in table.columns() if needed is None or name.casefold() in needed]
    meta = [name for name, _ in table.metadata() if name in mentioned]
    if not fields and not meta:
        meta = ["_offset"]  # a row must have something: the cheapest
    options = {**{f"kafka.{key}": value for key, value in kafka.items()}, "subscribe": table.topic}
    if is_stream:
        options["startingOffsets"] = starting
    else:
        options["maxRecordsPerPartition"] = str(TASK_RECORDS)
    decode, selection, columns = decoding(table, fields, meta)
    options |= decode | {"columns": ",".join(dict.fromkeys(columns))}
    given = {**table.options, **(more or {})}
    lower = {key.lower() for key in given}
    options = {key: value for key, value in options.items() if key.lower() not in lower} | given
    return Read(table.name, table.topic, is_stream, options, selection)


def decoding(
    table: Table, fields: list[str], meta: list[str]
) -> tuple[dict[str, str], tuple[tuple[str, ...], ...], list[str]]:
    """Options, selections and the columns of the source."""
    expressions = [f"{expression_of(table, name)} AS {name}" for name in meta]
    columns = [METADATA[name][0] for name in meta]
    shape = table.shape
    if shape.format is not Format.JSON:
        named = [f"{VALUE} AS {quoted(table.text_column)}"] if fields else []
        options = {"valueFormat": "string"} if shape.format is Format.STRING else {}
        needs_value = bool(fields) or "_corrupt" in meta
        return (
            options if needs_value else {},
            ((*named, *expressions),),
            [*([VALUE] if needs_value else []), *columns],
        )
    if not fields and "_corrupt" not in meta:
        return {}, (tuple(expressions),), columns
    if shape.exact:
        chosen = [(name, kind) for name, kind in shape.fields if name in fields] or list(shape.fields)
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in chosen)
        named = [f"{VALUE}.{quoted(name)} AS {quoted(name)}" for name in fields]
        return {"valueSchema": schema}, ((*named, *expressions),), [VALUE, *columns]
    return decoding_by_spark(table, fields, meta)


def decoding_by_spark(
    table: Table, fields: list[str], meta: list[str]
) -> tuple[dict[str, str], tuple[tuple[str, ...], ...], list[str]]:
    """For fields that have no one type: Spark's parser gives the text of what is not text. It is slower."""
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.shape.fields)
    bad = "_moldau_corrupt"
    text = json.dumps(f"{schema}, {bad} STRING", ensure_ascii=False)
    parse = f"from_json({VALUE}, {text}, map('columnNameOfCorruptRecord', '{bad}')) AS {VALUE}"
    others = [METADATA[name][0] for name in meta if name != "_corrupt"]
    first = (parse, "corruptValue", *others)
    second = [f"{VALUE}.{quoted(name)} AS {quoted(name)}" for name in fields]
    for name in meta:
        expression = expression_of(table, name)
        if name == "_corrupt":
            expression = f"coalesce({VALUE}.{bad}, {expression})"
        second.append(f"{expression} AS {name}")
    return {"valueFormat": "string"}, (first, tuple(second)), [VALUE, "corruptValue", *others]


def expression_of(table: Table, name: str) -> str:
    if name == "_key" and not table.shape.text_keys:
        return "key"
    return METADATA[name][1]
