"""Which schemas fit together: what a table becomes when rows of another schema join it.

Columns are the same by name, in any case, as in Spark. A new column is added; a narrower number is widened on the way
in; a wider one widens the table. Anything else is a `SchemaConflict` that names the column. A column that the rows
lack is null in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class SchemaConflict(ValueError):
    """Rows that do not fit into a table, by the name of the column."""


@dataclass(frozen=True)
class Evolution:
    table: Any
    """The table's Arrow schema afterwards."""
    rows: Any
    """The Arrow schema that the rows are written in: the table's names and types, the rows' order."""
    added: tuple[str, ...]
    widened: tuple[str, ...]


def canonical(schema: Any) -> Any:
    """Everything may be null, times are microseconds in UTC: what Parquet and Delta hold."""
    return pa.schema([pa.field(field.name, _canonical_type(field.type)) for field in schema])


def _canonical_type(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _canonical_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _canonical_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_canonical_type(kind.key_type), _canonical_type(kind.item_type))
    return kind


def evolve(table: Any, rows: Any, merge: bool = True) -> Evolution:
    """How rows of schema `rows` join a table of schema `table`, both canonical."""
    _refuse_twins(rows)
    names = {field.name.lower(): field for field in table}
    merged = {field.name: field.type for field in table}
    written = []
    added: list[str] = []
    widened: list[str] = []
    for field in rows:
        known = names.get(field.name.lower())
        if known is None:
            merged[field.name] = field.type
            added.append(field.name)
            written.append(field)
            continue
        kind = _join(known.name, known.type, field.type, added, widened)
        merged[known.name] = kind
        written.append(pa.field(known.name, kind))
    if (added or widened) and not merge:
        raise SchemaConflict(
            f"the table has no such column or a narrower one: {', '.join(added + widened)}"
            " (mergeSchema=true changes the table)"
        )
    after = pa.schema([pa.field(name, kind) for name, kind in merged.items()])
    return Evolution(after, pa.schema(written), tuple(added), tuple(widened))


def _refuse_twins(rows: Any) -> None:
    seen: set[str] = set()
    for name in rows.names:
        if name.lower() in seen:
            raise SchemaConflict(f"column {name} is there twice")
        seen.add(name.lower())


def _join(name: str, table: Any, rows: Any, added: list[str], widened: list[str]) -> Any:
    """The type that holds both."""
    if table == rows:
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(rows):
        return _join_structs(name, table, rows, added, widened)
    if pa.types.is_list(table) and pa.types.is_list(rows):
        element = _join(f"{name}.element", table.value_type, rows.value_type, added, widened)
        return pa.list_(pa.field("element", element))
    if pa.types.is_map(table) and pa.types.is_map(rows):
        return pa.map_(
            _join(f"{name}.key", table.key_type, rows.key_type, added, widened),
            _join(f"{name}.value", table.item_type, rows.item_type, added, widened),
        )
    wider = wider_type(table, rows)
    if wider is None:
        raise SchemaConflict(f"column {name} is {table} in the table and {rows} in the rows")
    if wider != table:
        widened.append(name)
    return wider


def _join_structs(name: str, table: Any, rows: Any, added: list[str], widened: list[str]) -> Any:
    incoming = {field.name.lower(): field for field in rows}
    fields = []
    for field in table:
        other = incoming.pop(field.name.lower(), None)
        kind = (
            field.type
            if other is None
            else _join(f"{name}.{field.name}", field.type, other.type, added, widened)
        )
        fields.append(pa.field(field.name, kind))
    for field in incoming.values():
        added.append(f"{name}.{field.name}")
        fields.append(field)
    return pa.struct(fields)


def wider_type(one: Any, other: Any) -> Any:
    """The one of two number types that holds both, or None."""
    if one == other:
        return one
    if one in WHOLE and other in WHOLE:
        return max(one, other, key=WHOLE.index)
    if {one, other} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(digits + scale, scale) if digits + scale <= 38 else None
    return None
