"""Spark's writers over the lake: tasks write files, the driver commits them in one step.

A streaming batch is known by the query's id and the batch's number, which Spark keeps in the checkpoint and tells every
task; they make the commit's (application, version), so a batch that Spark runs again adds nothing. A batch write has
such a pair by `txnAppId` and `txnVersion` (for foreachBatch), as in Delta; without them every write is a new one.

Attempts of a task never share a file: each draws names of its own, and only the attempt whose message reaches the
driver is committed. So a retry, a speculative copy or a task that outlives its job can do no harm.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from moldau.spark.lake import delta, folder, maintenance
from moldau.spark.lake.files import FileLimits, TaskFiles, WrittenFile
from moldau.spark.lake.options import DELTA, PARQUET, BadOption, LakeOptions, Transaction
from moldau.spark.lake.partitions import Values, folder_of, partitioning, unsafe_free
from moldau.spark.lake.schema import canonical

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    files: list[WrittenFile]
    finals: list[str]
    """Where each file becomes visible; a Delta table's files are there already."""
    transaction: Transaction
    schema: Any
    """The Arrow schema that the files (and their partitions) have."""


class Lake:
    """One write to one table: planned on the driver, carried out by tasks, committed on the driver."""

    def __init__(self, options: LakeOptions, schema: Any, overwrite: bool) -> None:
        if overwrite and options.table_format == PARQUET:
            raise BadOption(
                "a folder of Parquet can only be appended to: choose tableFormat=delta to overwrite"
            )
        self.options, self.overwrite = options, overwrite
        rows = canonical(to_arrow_schema(schema, timezone="UTC"))
        parts = partitioning(options, rows)
        self.schema = self._evolution(parts.extend(rows), parts.columns).rows
        self.rows = pa.schema([self.schema.field(at) for at in range(len(rows))])
        self.partitioning = partitioning(options, self.rows)

    def _evolution(self, rows: Any, columns: Sequence[str]) -> Any:
        merge = self.options.merge_schema
        if self.options.table_format == DELTA:
            return delta.evolution(delta.open_table(self.options.path), rows, columns, merge)
        return folder.evolution(self.options.path, rows, columns, merge)

    def reached(self, step: str) -> None:
        """Called between any two steps of a write: a place for tests to fail at."""

    def write(self, batches: Iterator[Any], transaction: Transaction, task: int) -> Written:
        """On an executor: this task's rows become files that nobody sees yet."""
        limits = FileLimits(
            self.options.max_records_per_file, self.options.max_file_bytes, self.options.compression
        )
        names = _Names(self.options, self.partitioning.columns, transaction, task)
        files = TaskFiles(self.options.path, self.partitioning.in_file(self.schema), limits, names.written)
        try:
            self.reached("task starts")
            for batch in batches:
                for values, rows in self.partitioning.split(_cast(batch, self.rows)):
                    files.write(values, rows)
                self.reached("task has written rows")
            written = files.close()
            self.reached("task has closed its files")
        except BaseException:
            files.discard()
            raise
        return Written(
            written, [names.final(file, at) for at, file in enumerate(written)], transaction, self.schema
        )

    def commit(self, messages: Sequence[Written | None], transaction: Transaction, keep_once: bool) -> None:
        """On the driver: all files become visible, unless this (application, version) is there already."""
        tasks = [message for message in messages if message is not None]
        self.reached("commit starts")
        columns = self.partitioning.columns
        schema = tasks[0].schema if tasks else self.schema
        if self.options.table_format == PARQUET:
            moves = [pair for task in tasks for pair in zip(task.files, task.finals, strict=True)]
            writer = folder.FolderWriter(self.options.path, columns, schema, self.options.merge_schema)
            writer.commit(moves, transaction, self.reached)
        else:
            files = [file for task in tasks for file in task.files]
            table = delta.DeltaWriter(self.options.path, columns, schema, self.options.merge_schema)
            added = table.commit(files, transaction if keep_once else None, self.overwrite, self.reached)
            if files and added and _is_due(self.options.compact_after, transaction, keep_once):
                maintenance.start(self.options)
        self.reached("commit ends")

    def abort(
        self, messages: Sequence[Written | None], transaction: Transaction | None, keep_once: bool
    ) -> None:
        """On the driver: files of a batch that failed are removed, unless it was committed all the same."""
        tasks = [message for message in messages if message is not None]
        if self.options.table_format == PARQUET:
            if transaction is not None:
                folder.FolderWriter(self.options.path, (), self.schema).abort(transaction)
        else:
            files = [file for task in tasks for file in task.files]
            table = delta.DeltaWriter(self.options.path, self.partitioning.columns, self.schema)
            table.abort(files, transaction if keep_once else None)


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one per batch to write with, and one more to commit with."""

    def __init__(self, lake: Lake) -> None:
        if lake.options.transaction is not None:
            raise BadOption("txnAppId is for batch writes: a streaming query has a name of its own")
        self.lake = lake

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not query_id or not batch_id:
            raise RuntimeError(
                "Spark does not tell its tasks the query and the batch, without which nothing is exactly once"
            )
        return self.lake.write(iterator, Transaction(query_id, int(batch_id)), context.partitionId())

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        transaction = _transaction(messages, batchId)
        if transaction is not None:
            self.lake.commit(messages, transaction, keep_once=True)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        self.lake.abort(messages, _transaction(messages, batchId), keep_once=True)


class LakeBatchWriter(DataSourceArrowWriter):
    """Made once per write, on the driver; the same object commits."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.keep_once = lake.options.transaction is not None
        self.transaction = lake.options.transaction or Transaction(f"write-{uuid.uuid4().hex}", 0)

    def write(self, iterator: Iterator[Any]) -> Written:
        return self.lake.write(iterator, self.transaction, TaskContext.get().partitionId())

    def commit(self, messages: list[Written | None]) -> None:
        self.lake.commit(messages, self.transaction, self.keep_once)

    def abort(self, messages: list[Written | None]) -> None:
        self.lake.abort(messages, self.transaction, self.keep_once)


class _Names:
    """Where a task's files go."""

    def __init__(
        self, options: LakeOptions, columns: Sequence[str], transaction: Transaction, task: int
    ) -> None:
        self._delta = options.table_format == DELTA
        self._columns, self._transaction = columns, transaction
        self._attempt = uuid.uuid4().hex
        self._stem = f"part-{transaction.version:06d}-{task:05d}"

    def written(self, values: Values, number: int) -> str:
        name = f"{self._stem}-{number:04d}-{self._attempt}"
        if self._delta:
            return os.path.join(unsafe_free(self._columns, values), f"{name}.parquet")
        return f"{folder.staging_folder(self._transaction)}/{name}.staged"

    def final(self, file: WrittenFile, at: int) -> str:
        """The same query, batch and task give the same names."""
        if self._delta:
            return file.path
        application = uuid.uuid5(uuid.NAMESPACE_OID, self._transaction.app_id).hex[:12]
        return os.path.join(
            folder_of(self._columns, file.partition), f"{self._stem}-{at:04d}-{application}.parquet"
        )


def _transaction(messages: Sequence[Written | None], batch_id: int) -> Transaction | None:
    """The batch's name as its tasks were told it."""
    for message in messages:
        if message is not None:
            if message.transaction.version != batch_id:
                raise RuntimeError(
                    f"a task wrote batch {message.transaction.version} while batch {batch_id} is committed"
                )
            return message.transaction
    return None


def _cast(batch: Any, schema: Any) -> Any:
    """Spark's rows under the table's names and types."""
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_due(compact_after: int, transaction: Transaction, keep_once: bool) -> bool:
    return bool(compact_after) and (not keep_once or (transaction.version + 1) % compact_after == 0)
