"""Values decoded by the tasks: `valueFormat` string or json, and what becomes of values that are not of that
format.

A record batch is decoded whole, by Arrow, which is many times faster than `from_json` on the other side. Where that
fails it is halved until the bad values stand alone: the others are decoded as ever, by the same parser. A bad value
is null in the column `value` and stands as it is in `corruptValue`; or, with a dead-letter topic, its record goes
there and has no row.

That is the mode PERMISSIVE; with FAILFAST a bad value fails the query and names its record, with DROPMALFORMED its
record has no row, as in Spark's readers.

A value that is null (a tombstone) is of any format. Another format is a function in FORMATS.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from moldau.spark.blocks.columns import TYPES, bytes_scalar, fixed
from moldau.spark.blocks.read import read_split
from moldau.spark.blocks.settings import ReadSettings, Split
from moldau.spark.source.dead_letters import DeadLetters

VALUE: Final = "value"
CORRUPT: Final = "corruptValue"
FOR_DEAD_LETTERS: Final = ("key", "value", "offset", "headers")
OPENING, CLOSING, NEWLINE = (bytes_scalar(pa.binary(), each) for each in (b"{", b"}", b"\n"))
PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"
DROPMALFORMED: Final = "DROPMALFORMED"
Parse = Callable[[pa.Array, pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """`schema` is that of the rows; the reader's own has the bytes."""

    schema: pa.Schema
    value_format: str
    dead_letter_topic: str | None = None
    producer_config: dict[str, str] | None = None
    mode: str = PERMISSIVE

    def of_reading(self, settings: ReadSettings) -> ReadSettings:
        """What is to be read for it."""
        names = [VALUE if name == CORRUPT else name for name in self.schema.names]
        if self.dead_letter_topic:
            names += FOR_DEAD_LETTERS
        if self.mode == FAILFAST:
            names.append("offset")
        return replace(settings, schema=pa.schema([(name, TYPES[name]) for name in dict.fromkeys(names)]))


class MalformedRecord(ValueError):
    """A value that is not of its format, in the mode FAILFAST; in the words that Spark has for it."""


def read_values(settings: ReadSettings, values: ValueSettings, split: Split) -> Iterator[pa.RecordBatch]:
    letters = None
    if values.dead_letter_topic is not None:
        letters = DeadLetters(values.dead_letter_topic, values.producer_config or {}, split)
    for batch in read_split(values.of_reading(settings), split):
        try:
            rows = decode_batch(values, batch, letters)
        except MalformedRecord as reason:
            raise MalformedRecord(
                f"[MALFORMED_RECORD_IN_PARSING] Malformed records are detected in record parsing: {split.topic}, "
                f"partition {split.partition}, {reason}. Parse Mode: FAILFAST. To process malformed records as null "
                "result, try setting the option 'mode' as 'PERMISSIVE'."
            ) from None
        if rows is not None:
            yield rows


def decode_batch(
    values: ValueSettings, batch: pa.RecordBatch, letters: DeadLetters | None
) -> pa.RecordBatch | None:
    """The rows of a batch; None where none is left."""
    given = batch[VALUE]
    kind = values.schema.field(VALUE).type if VALUE in values.schema.names else pa.string()
    decoded, reasons = decode(given, kind, FORMATS[values.value_format])
    is_bad = None
    if reasons:
        is_bad = pa.array([index in reasons for index in range(len(given))])
        if values.mode == FAILFAST:
            first = min(reasons)
            raise MalformedRecord(f"offset {batch['offset'][first]}: {reasons[first].rstrip('.')}")
        if letters is not None:
            letters.send(batch, reasons)
        if letters is not None or values.mode == DROPMALFORMED:
            is_good = pc.invert(is_bad)
            batch, decoded = batch.filter(is_good), decoded.filter(is_good)
            if not batch.num_rows:
                return None
    columns: dict[str, pa.Array] = {name: batch[name] for name in batch.schema.names} | {VALUE: decoded}
    if CORRUPT in values.schema.names:
        nothing = pa.nulls(batch.num_rows, pa.binary())
        stands = is_bad is not None and batch.num_rows == len(given)
        columns[CORRUPT] = pc.if_else(is_bad, given, nothing) if stands else nothing
    return pa.RecordBatch.from_arrays([columns[name] for name in values.schema.names], schema=values.schema)


def decode(given: pa.Array, kind: pa.DataType, parse: Parse) -> tuple[pa.Array, dict[int, str]]:
    """The values, null where they are bad, and why those are."""
    try:
        return parse(given, kind), {}
    except pa.ArrowInvalid as reason:
        if len(given) == 1:
            return pa.nulls(1, kind), {0: str(reason)}
    middle = len(given) // 2
    first, first_reasons = decode(given[:middle], kind, parse)
    second, second_reasons = decode(given[middle:], kind, parse)
    reasons = first_reasons | {middle + index: reason for index, reason in second_reasons.items()}
    return pa.concat_arrays([first, second]), reasons


def parse_string(given: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text in UTF-8."""
    return given.cast(pa.string())


def parse_json(given: pa.Array, kind: pa.DataType) -> pa.Array:
    """One object each; fields that are not asked for are left out, and ones that are not there are null."""
    is_there = given.is_valid()
    present = given.filter(is_there) if given.null_count else given
    if not len(present):
        return pa.nulls(len(given), kind)
    texts = _objects(present)
    options = pj.ParseOptions(explicit_schema=pa.schema(_as_json(kind)), unexpected_field_behavior="ignore")
    block = pj.ReadOptions(use_threads=False, block_size=max(len(texts), 1))
    table = pj.read_json(pa.BufferReader(texts), read_options=block, parse_options=options)
    if table.num_rows != len(present):
        raise pa.ArrowInvalid("the value is more than one JSON object")
    parsed = _struct_of(table, kind)
    if len(present) == len(given):
        return parsed
    place = pc.if_else(is_there, pc.subtract(pc.cumulative_sum(pc.cast(is_there, pa.int64())), 1), None)
    return parsed.take(place)


def _objects(present: pa.Array) -> pa.Buffer:
    """All of them, each with a line's end after it.

    Each begins and ends as an object. So no value can be the rest of the one before it: between a } and a { that are
    not at the outermost level stands a comma, and no string goes over a line's end. With as many objects as values
    there is one in each. Lines within a value do no harm: Arrow cuts its input at the last line's end.
    """
    begins = pc.equal(pc.binary_slice(present, 0, 1), OPENING)
    ends = pc.equal(pc.binary_slice(present, -1), CLOSING)
    if not pc.all(pc.and_(begins, ends)).as_py():
        stripped = [value.strip() for value in present.to_pylist()]
        if not all(value.startswith(b"{") and value.endswith(b"}") for value in stripped):
            raise pa.ArrowInvalid("the value is no JSON object")
        present = pa.array(stripped, pa.binary())
    lists = pa.ListArray.from_arrays(
        fixed(pa.int32(), array("i", (0, len(present) + 1))), _with_an_end(present)
    )
    return pc.binary_join(lists, NEWLINE)[0].as_buffer()


def _with_an_end(present: pa.Array) -> pa.Array:
    """And an empty value after them; nothing of what they hold is copied."""
    _, ends, content = present.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(present) + 1, [None, ends], offset=present.offset)
    longer = pa.concat_arrays([offsets, offsets[-1:]])
    return pa.Array.from_buffers(pa.binary(), len(present) + 1, [None, longer.buffers()[1], content])


def _struct_of(table: pa.Table, kind: pa.DataType) -> pa.Array:
    columns = [table[field.name].combine_chunks() for field in kind]
    parsed = pa.StructArray.from_arrays(columns, fields=_as_json(kind)).cast(kind)
    parsed.validate(full=True)
    return parsed


def _as_json(kind: pa.StructType) -> list[pa.Field]:
    return [field.with_type(_json_type(field.type)) for field in kind]


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Dates stand in JSON as text, which Arrow's parser does not take for one."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct(_as_json(kind))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_json_type(kind.value_type)))
    return kind


FORMATS: Final[dict[str, Parse]] = {"string": parse_string, "json": parse_json}


def unsupported(kind: Any) -> Any | None:
    """A type in it that JSON is not decoded to."""
    if pa.types.is_struct(kind):
        return next((found for field in kind if (found := unsupported(field.type)) is not None), None)
    if pa.types.is_list(kind):
        return unsupported(kind.value_type)
    known = (
        pa.types.is_string,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return None if any(is_known(kind) for is_known in known) else kind
