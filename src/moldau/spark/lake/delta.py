"""Files join a Delta table in one commit, once per (application, version).

The commit carries the pair as a `txn` action of the Delta protocol, and is left out where the table knows it already.
Two drivers that commit the same batch at once collide on that action, and the later one finds it done. Conflicts with
other writers (a changed schema, above all) are tried again on the table as it is then, `COMMIT_TRIES` times.

A file that no commit names is seen by no reader; `maintenance` removes it when it is old. A commit whose outcome is not
known (a process killed in it) is found out by reading the table, never guessed.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, write_deltalake
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from moldau.spark.lake import schema as schemas
from moldau.spark.lake.files import WrittenFile
from moldau.spark.lake.options import Transaction, local_path
from moldau.spark.lake.schema import Evolution, SchemaConflict

COMMIT_TRIES = 10
PAUSE_S_MAX = 2.0
REWRITE_ROWS = 1 << 16

log = logging.getLogger(__name__)


def open_table(path: str) -> Any:
    """The table in a folder as it is now, None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def arrow_schema(table: Any) -> Any:
    return schemas.canonical(pa.schema(table.schema().to_arrow()))


def delta_schema(schema: Any) -> Any:
    """The Delta schema of an Arrow one; a type that Delta lacks is refused by the column's name."""
    for field in schema:
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:
            raise SchemaConflict(
                f"column {field.name}: a Delta table has no type for {field.type}"
            ) from error
    return Schema.from_arrow(schema)


def evolution(table: Any, rows: Any, columns: Sequence[str], merge: bool) -> Evolution:
    """How rows join `table` (None: a new one) that is to be parted by `columns`."""
    if table is None:
        delta_schema(rows)
        return schemas.evolve(rows, rows)
    parted = table.metadata().partition_columns
    if [name.lower() for name in parted] != [name.lower() for name in columns]:
        raise SchemaConflict(
            f"the table is partitioned by {parted or 'nothing'}, the rows by {list(columns) or 'nothing'}"
        )
    return schemas.evolve(arrow_schema(table), rows, merge)


class DeltaWriter:
    """Commits to the table in one folder."""

    def __init__(self, path: str, columns: Sequence[str], rows: Any, merge: bool = True) -> None:
        self.path, self.columns, self.rows, self.merge = path, tuple(columns), rows, merge

    def commit(
        self,
        files: Sequence[WrittenFile],
        transaction: Transaction | None,
        overwrite: bool = False,
        reached: Callable[[str], None] = lambda step: None,
    ) -> bool:
        """Add the files (or let them replace all that is there); False where the table had this batch already."""
        for last_try in tries():
            table = self._table()
            if transaction and is_committed(table, transaction):
                log.info("%s has batch %s already", self.path, transaction)
                return False
            if not files and not overwrite:
                return True
            try:
                reached("before schema")
                table = self._evolve(table)
                reached("before commit")
                self.write(table, files, transaction, overwrite)
                reached("after commit")
                return True
            except CommitFailedError as conflict:
                log.info("%s: %s", self.path, conflict)
                if last_try:
                    raise
        raise AssertionError("unreachable")

    def abort(self, files: Sequence[WrittenFile], transaction: Transaction | None) -> None:
        """Remove files of a batch that failed, unless it was committed after all."""
        table = open_table(self.path)
        if table is not None and transaction and is_committed(table, transaction):
            return
        named = set() if table is None else set(relative_paths(table))
        for file in files:
            full = os.path.join(self.path, file.path)
            if file.path not in named and os.path.exists(full):
                os.unlink(full)

    def prepare(self) -> Any:
        """The table with these rows' columns, made or changed where it lacks them."""
        for last_try in tries():
            try:
                return self._evolve(self._table())
            except CommitFailedError:
                if last_try:
                    raise
        raise AssertionError("unreachable")

    def _table(self) -> Any:
        table = open_table(self.path)
        if table is None:
            os.makedirs(self.path, exist_ok=True)
            DeltaTable.create(
                self.path, delta_schema(self.rows), mode="ignore", partition_by=list(self.columns) or None
            )
            table = DeltaTable(self.path)
        return table

    def _evolve(self, table: Any) -> Any:
        plan = evolution(table, self.rows, self.columns, self.merge)
        if not plan.rows.equals(self.rows):
            raise SchemaConflict(f"{self.path} got other columns while this batch was written: run it again")
        if plan.widened:
            log.warning("%s is written anew: its columns %s become wider", self.path, ", ".join(plan.widened))
            rewrite(table, plan.table)
        elif plan.added:
            log.info("%s gets the columns %s", self.path, ", ".join(plan.added))
            tops = {name.split(".")[0] for name in plan.added}
            fields = [Field.from_arrow(field) for field in plan.table if field.name in tops]
            table.alter.add_columns(fields)
        else:
            return table
        return DeltaTable(self.path)

    def write(
        self,
        table: Any,
        files: Sequence[WrittenFile],
        transaction: Transaction | None,
        overwrite: bool = False,
        removed: Sequence[tuple[str, tuple[tuple[str, str | None], ...]]] = (),
    ) -> None:
        """One commit to `table` as it was read: files join it, and removed ones (full path, partition) leave it."""
        for file in files:
            if not os.path.exists(os.path.join(self.path, file.path)):
                raise FileNotFoundError(
                    f"{self.path}: {file.path} was removed before its batch was committed"
                )
        now_ms = int(time.time() * 1000)
        named = {name.lower(): name for name in table.metadata().partition_columns}
        columns = [named[name.lower()] for name in self.columns]
        actions = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=dict(zip(columns, file.partition, strict=True)),
                modification_time=now_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in files
        ]
        root = root_of(table)
        gone = [
            RemoveAction(os.path.relpath(path, root), True, now_ms, partition_values=dict(values))
            for path, values in removed
        ]
        table.create_write_transaction(
            [*actions, *gone],
            mode="overwrite" if overwrite else "append",
            schema=table.schema(),
            partition_by=columns,
            commit_properties=properties(transaction, alone=bool(removed)),
        )


def properties(transaction: Transaction | None, alone: bool) -> Any:
    """What a commit carries: the (application, version) that it is kept once for.

    deltalake lets appends pass each other, and takes a commit that removes files for one: `alone` is the very next
    version of the table, or a conflict.
    """
    marks = [AppTransaction(transaction.app_id, transaction.version)] if transaction else None
    return CommitProperties(app_transactions=marks, max_commit_retries=0 if alone else None)


def is_committed(table: Any, transaction: Transaction) -> bool:
    version = table.transaction_version(transaction.app_id)
    return version is not None and version >= transaction.version


def rewrite(table: Any, schema: Any) -> None:
    """The same rows under wider types, in one commit; readers of the old version keep their files."""
    # Through Arrow's own files: those that deltalake gives it run Python, and at times the process ends by an abort.
    files = SubTreeFileSystem(root_of(table), LocalFileSystem())
    dataset = table.to_pyarrow_dataset(schema=schema, filesystem=files)
    batches: Iterator[Any] = dataset.to_batches(batch_size=REWRITE_ROWS)
    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(schema, batches),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=table.metadata().partition_columns or None,
    )


def tries() -> Iterable[bool]:
    """`COMMIT_TRIES` times whether this is the last one, with growing pauses between."""
    for attempt in range(COMMIT_TRIES):
        if attempt:
            time.sleep(min(0.02 * 2**attempt, PAUSE_S_MAX) * random.uniform(0.5, 1))
        yield attempt == COMMIT_TRIES - 1


def root_of(table: Any) -> str:
    """The table's folder."""
    return local_path(table.table_uri)


def relative_paths(table: Any) -> list[str]:
    """The table's files by their paths below its folder, which the log has in percent-encoding."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return [urllib.parse.unquote(path) for path in actions.column("path").to_pylist()]


def log_versions(path: str, first: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The table's commits from version `first` on, each as its actions; it ends where the log does."""
    version = first
    while True:
        try:
            with open(os.path.join(path, "_delta_log", f"{version:020d}.json"), encoding="utf-8") as file:
                actions = [json.loads(line) for line in file if line.strip()]
        except FileNotFoundError:
            return
        yield version, actions
        version += 1
