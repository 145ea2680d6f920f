"""Change events in their order: the latest of each key, or the intervals that each key's events make.

Pure, over Arrow tables with the columns `SEQUENCE` and `DELETED` beside the events' own. Events of one key are ordered
by sequence, not by arrival. Of two with the same sequence a deletion wins, else the one that came last.

`intervals` is SCD type 2 as Spark's auto CDC has it: consecutive upserts that agree on the tracked columns are one row,
from the first one's sequence on, with the last one's values; the next event, an upsert or a deletion, ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEQUENCE = "__sequence"
DELETED = "__deleted"
START_AT = "__START_AT"
END_AT = "__END_AT"
ORDERED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)


class BadChange(ValueError):
    """Events that have no place in an order, by the column that is at fault."""


def check(events: Any, keys: Sequence[str]) -> None:
    """Every event has a key and a place in the order."""
    kind = events.schema.field(SEQUENCE).type
    if not any(test(kind) for test in ORDERED):
        raise BadChange(
            f"sequence_by is {kind}, which has no order here: choose numbers, strings, dates or times"
        )
    for name in (*keys, SEQUENCE):
        nulls = events.column(name).null_count
        if nulls:
            raise BadChange(
                f"{'sequence_by' if name == SEQUENCE else f'key {name}'} is null in {nulls} events"
            )


def groups(table: Any, columns: Sequence[str]) -> Any:
    """A number for each row, the same for rows that are equal in these columns."""
    codes: Any = np.zeros(table.num_rows, dtype=np.int64)
    for name in columns:
        encoded = pc.dictionary_encode(table.column(name).combine_chunks(), null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def latest(events: Any, columns: Sequence[str]) -> Any:
    """The last event for each combination of values in `columns`, in the events' order."""
    codes = groups(events, columns)
    order = _order(events, codes)
    ordered = codes[order]
    is_last: Any = np.append(ordered[1:] != ordered[:-1], [True] * bool(len(ordered)))
    return events.take(pa.array(np.sort(order[is_last.astype(bool)])))


def _order(events: Any, codes: Any) -> Any:
    """The rows by group, sequence, deletions last, arrival."""
    keyed = pa.table(
        {
            "group": pa.array(codes),
            "sequence": events.column(SEQUENCE),
            "deleted": events.column(DELETED).cast(pa.int8()),
            "arrival": pa.array(np.arange(events.num_rows)),
        }
    )
    by = [(name, "ascending") for name in keyed.column_names]
    return pc.sort_indices(keyed, sort_keys=by).to_numpy(zero_copy_only=False)


def intervals(events: Any, keys: Sequence[str], tracked: Sequence[str]) -> Any:
    """The rows of an SCD type 2 table for these events, which are all events of their keys.

    Without `SEQUENCE` and `DELETED`, and with `START_AT` and `END_AT`, null where a row is still valid.
    """
    events = latest(events, [*keys, SEQUENCE])
    codes = groups(events, keys)
    order = _order(events, codes)
    events, codes = events.take(pa.array(order)), codes[order]
    count = events.num_rows
    deleted = events.column(DELETED).to_numpy(zero_copy_only=False).astype(bool)
    follows = np.zeros(count, dtype=bool)
    follows[1:] = codes[1:] == codes[:-1]
    continues = follows & ~deleted
    continues[1:] &= ~deleted[:-1]
    if count > 1:
        for name in tracked:
            column = events.column(name)
            continues[1:] &= same(column.slice(1), column.slice(0, count - 1))
    heads = np.maximum.accumulate(np.where(continues, 0, np.arange(count)))
    is_tail = ~deleted & ~np.append(continues[1:], False)[:count]
    tails = np.flatnonzero(is_tail)
    sequence = events.column(SEQUENCE).combine_chunks()
    ends = np.append(follows[1:], False)[:count][tails]
    next_at = pa.array(np.where(ends, tails + 1, 0), mask=~ends)
    rows = events.drop_columns([SEQUENCE, DELETED]).take(pa.array(tails))
    rows = rows.append_column(START_AT, sequence.take(pa.array(heads[tails])))
    return rows.append_column(END_AT, sequence.take(next_at))


def same(one: Any, other: Any) -> Any:
    """Where two columns are equal: null is equal to null, NaN to NaN."""
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([left == right for left, right in pairs], dtype=bool)
    equal = pc.fill_null(pc.equal(one, other), False)
    equal = pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        both = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))
        equal = pc.or_(equal, both)
    return equal.to_numpy(zero_copy_only=False).astype(bool)


def difference(before: Any, after: Any, keys: Sequence[str]) -> tuple[Any, Any]:
    """(rows that are new or changed, rows whose keys are gone), `keys` naming a row."""
    before = before.select(after.column_names).cast(after.schema)
    codes = groups(pa.concat_tables([before.select(keys), after.select(keys)]), keys)
    old, new = codes[: before.num_rows], codes[before.num_rows :]
    place = np.full(codes.max(initial=-1) + 1, -1)
    place[old] = np.arange(len(old))
    known = place[new] >= 0
    unchanged = known.copy()
    matched = np.flatnonzero(known)
    old_rows, new_rows = before.take(pa.array(place[new][matched])), after.take(pa.array(matched))
    for name in after.column_names:
        unchanged[matched] &= same(new_rows.column(name), old_rows.column(name))
    return after.filter(pa.array(~unchanged)), before.filter(pa.array(~np.isin(old, new)))
