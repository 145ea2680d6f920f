"""Change data into a Delta table, batch by batch: `create_auto_cdc_flow`'s rules, for foreachBatch.

    changes = Changes(keys=("id",), sequence_by="version", apply_as_deletes="op = 'DELETE'", except_column_list=("op",))
    frame.writeStream.foreachBatch(lambda batch, number: apply_changes(batch, changes, path, Transaction(name, number)))

SCD type 1 keeps the latest row of each key, type 2 every row with the sequence it was valid from (`__START_AT`) and
until (`__END_AT`). Events may come in any order, late, and more than once: only their sequences count. `history` has
the rules.

What a table's rows do not tell, the sequence of each key and deletions (type 1) or all events (type 2), is kept in a
Delta table of its own in the folder's `_moldau/changes`. It is written first; then what follows from it for the keys of
the batch is merged into the table. Both steps give the same when they are done again, so a batch that dies between
them is finished by its replay. Commits carry (application, version) as all of the lake's do, and flows into one table
take turns by a lock.

A batch is merged in the driver's memory, beside the rows that the tables hold for its keys: bound it by the source's
limits (`maxOffsetsPerTrigger`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake import delta, history, maintenance
from moldau.spark.lake.history import DELETED, END_AT, SEQUENCE, START_AT, BadChange
from moldau.spark.lake.locks import HIDDEN, locked
from moldau.spark.lake.options import LakeOptions, Transaction
from moldau.spark.lake.replace import Keys, replace_rows, rows_of
from moldau.spark.lake.schema import canonical

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FRESH = "__fresh"
RESERVED = (SEQUENCE, DELETED, START_AT, END_AT, FRESH)


@dataclass(frozen=True)
class Changes:
    """What `create_auto_cdc_flow` takes, by its names; expressions are SQL or Spark's columns."""

    keys: tuple[str, ...]
    sequence_by: str | Column
    apply_as_deletes: str | Column | None = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] | None = None
    stored_as_scd_type: int = 1
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] | None = None

    def selected(self, names: Sequence[str]) -> list[str]:
        """The columns of the table, of those that the events have."""
        chosen = _choose(names, self.column_list, self.except_column_list, "column_list")
        for key in self.keys:
            if key not in chosen:
                raise BadChange(f"key {key} is not among the table's columns: {', '.join(chosen)}")
        for name in chosen:
            if name in RESERVED:
                raise BadChange(f"column {name}: the name is the table's own")
        return chosen

    def tracked(self, names: Sequence[str]) -> list[str]:
        """The columns whose change begins a new row, for SCD type 2."""
        eligible = [name for name in names if name not in self.keys]
        return _choose(
            eligible,
            self.track_history_column_list,
            self.track_history_except_column_list,
            "track_history_column_list",
        )


def _choose(
    names: Sequence[str], only: Sequence[str] | None, without: Sequence[str] | None, what: str
) -> list[str]:
    for name in (*(only or ()), *(without or ())):
        if name not in names:
            raise BadChange(f"{what}: there is no column {name} among {', '.join(names)}")
    if only:
        return [name for name in names if name in only]
    return [name for name in names if name not in (without or ())]


def events_of(batch: DataFrame, changes: Changes) -> Any:
    """A micro-batch as an Arrow table: the columns of the table, with their place in the order."""
    return _events(batch, changes).toArrow()


def _events(batch: DataFrame, changes: Changes) -> DataFrame:
    from pyspark.sql import functions

    def column(expression: str | Column) -> Column:
        return functions.expr(expression) if isinstance(expression, str) else expression

    deletes = functions.lit(False) if changes.apply_as_deletes is None else column(changes.apply_as_deletes)
    return batch.select(
        *(functions.col(f"`{name.replace('`', '``')}`") for name in changes.selected(batch.columns)),
        column(changes.sequence_by).alias(SEQUENCE),
        functions.coalesce(deletes, functions.lit(False)).alias(DELETED),
    )


def table_schema(batch: DataFrame, changes: Changes) -> Any:
    """The Spark schema of the table that these events make, for those who make it beforehand."""
    from pyspark.sql.types import StructType

    events = _events(batch, changes).schema
    rows = StructType([field for field in events.fields if field.name not in (SEQUENCE, DELETED)])
    if changes.stored_as_scd_type == 2:
        rows = rows.add(START_AT, events[SEQUENCE].dataType).add(END_AT, events[SEQUENCE].dataType)
    return rows


def apply_changes(
    batch: DataFrame,
    changes: Changes,
    path: str,
    transaction: Transaction,
    partition_by: Sequence[str] = (),
    compact_after: int = 0,
) -> bool:
    """Merge a micro-batch into the table at `path`; False where it was merged before."""
    merged = merge(events_of(batch, changes), changes, path, transaction, partition_by)
    if merged and compact_after and (transaction.version + 1) % compact_after == 0:
        maintenance.start(LakeOptions(path))
        maintenance.start(LakeOptions(state_path(path)))
    return merged


def state_path(path: str) -> str:
    return os.path.join(path, HIDDEN, "changes")


def merge(
    events: Any,
    changes: Changes,
    path: str,
    transaction: Transaction,
    partition_by: Sequence[str] = (),
    reached: Callable[[str], None] = lambda step: None,
) -> bool:
    """Merge events as `events_of` gives them."""
    if changes.stored_as_scd_type not in (1, 2):
        raise BadChange(f"stored_as_scd_type={changes.stored_as_scd_type}: choose 1 or 2")
    events = events.cast(canonical(events.schema))
    history.check(events, changes.keys)
    with locked(path, "changes.lock"):
        table = delta.open_table(path)
        if table is not None and delta.is_committed(table, transaction):
            return False
        if not events.num_rows:
            return True
        events = _fit(events, delta.open_table(state_path(path)))
        step = _latest if changes.stored_as_scd_type == 1 else _intervals
        reached("merge starts")
        step(events, changes, path, transaction, partition_by, reached)
        reached("merge ends")
    return True


def _latest(
    events: Any,
    changes: Changes,
    path: str,
    transaction: Transaction,
    partition_by: Sequence[str],
    reached: Callable[[str], None],
) -> None:
    """SCD type 1: the events that are the latest of their keys so far, and what they say of the table."""
    keys = list(changes.keys)
    names = [name for name in events.column_names if name not in (SEQUENCE, DELETED)]
    known = _rows_of(state_path(path), events, keys)
    winners = _not_beaten(history.latest(events, keys), known, keys, keys)
    if not winners.num_rows:
        return
    state = winners.select([*keys, SEQUENCE, DELETED])
    replace_rows(state_path(path), state.slice(0, 0), state, keys, transaction)
    reached("state is merged")
    leaving = winners.filter(winners.column(DELETED)).select(names)
    arriving = winners.filter(pc.invert(winners.column(DELETED))).select(names)
    replace_rows(path, leaving, arriving, keys, transaction, partition_by)


def _intervals(
    events: Any,
    changes: Changes,
    path: str,
    transaction: Transaction,
    partition_by: Sequence[str],
    reached: Callable[[str], None],
) -> None:
    """SCD type 2: all events of the batch's keys, and the rows that they make."""
    keys = list(changes.keys)
    known = _rows_of(state_path(path), events, keys)
    fresh = history.latest(events, [*keys, SEQUENCE])
    everything = fresh
    if known is not None:
        everything = pa.concat_tables([known, fresh], promote_options="permissive")
    moments = [*keys, SEQUENCE]
    state = _not_beaten(fresh, known, keys, moments)
    replace_rows(state_path(path), state.slice(0, 0), state, moments, transaction)
    reached("state is merged")
    names = [name for name in everything.column_names if name not in (SEQUENCE, DELETED)]
    after = history.intervals(everything, keys, changes.tracked(names))
    before = _rows_of(path, events, keys)
    gone = after.slice(0, 0)
    if before is not None:
        for field in after.schema:
            if field.name not in before.column_names:
                before = before.append_column(field, pa.nulls(before.num_rows, field.type))
        after, gone = history.difference(before, after, [*keys, START_AT])
    if after.num_rows or gone.num_rows or before is None:
        replace_rows(path, gone, after, [*keys, START_AT], transaction, partition_by)


def _not_beaten(fresh: Any, known: Any, keys: Sequence[str], by: Sequence[str]) -> Any:
    """The fresh events that no known one comes after, for equal values in `by`.

    One that is known itself is not beaten: its batch may have died before the table had it.
    """
    if known is None:
        return fresh
    columns = [*keys, SEQUENCE, DELETED]
    old = known.select(columns).cast(_schema_of(fresh.schema, columns))
    is_fresh = pa.array([False] * old.num_rows + [True] * fresh.num_rows)
    together = pa.concat_tables([old, fresh], promote_options="default").append_column(FRESH, is_fresh)
    last = history.latest(together, by)
    return last.filter(last.column(FRESH)).select(fresh.column_names)


def _schema_of(schema: Any, columns: Sequence[str]) -> Any:
    return pa.schema([schema.field(name) for name in columns])


def _rows_of(path: str, events: Any, keys: Sequence[str]) -> Any:
    """The rows that a table has for the events' keys, None where there is no table."""
    table = delta.open_table(path)
    if table is None:
        return None
    schema = delta.arrow_schema(table)
    return rows_of(table, Keys(events.select(keys).cast(_schema_of(schema, keys))))


def _fit(events: Any, table: Any) -> Any:
    """The events in the table's types, where those are wider."""
    if table is None:
        return events
    plan = delta.evolution(table, events.schema, (), merge=True)
    return events.cast(
        pa.schema([field.with_name(name) for field, name in zip(plan.rows, events.column_names, strict=True)])
    )
