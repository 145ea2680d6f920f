"""What Spark calls: `writer` and `streamWriter` make one of these when a query is planned, and each task runs `write`.

Writers travel to the tasks pickled. A streaming task finds its query and its batch in the properties that Spark gives
to tasks; they are internal names, and a test fails where a new Spark has others.

Python sinks take the output modes append and complete (which writes the whole result, every time, as Spark's own
connector does); for update use foreachBatch with the batch writer. Spark refuses the save mode errorifexists, its
default, for every Python data source; overwrite is refused here, in the words of the connector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.spark.lasting import keep_what_is_loaded
from moldau.spark.topic_sink.clients import Kept
from moldau.spark.topic_sink.columns import Columns
from moldau.spark.topic_sink.exactly_once import ExactlyOnceTask, TaskIdentity
from moldau.spark.topic_sink.options import SinkOptions
from moldau.spark.topic_sink.rows import Rows
from moldau.spark.topic_sink.sending import Outlet

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
RUN_PROPERTY = "spark.jobGroup.id"

OUTLETS: Kept[Outlet] = Kept(kept_max=4)


class RowsWritten(WriterCommitMessage):
    def __init__(self, partition: int, rows: int, replayed: bool) -> None:
        self.partition = partition
        self.rows = rows
        self.replayed = replayed


class TopicWriter:
    """What both kinds of writers do in a task."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, streaming: bool) -> None:
        self.options = SinkOptions.of(options, streaming=streaming)
        self.columns = Columns.of(schema, self.options.topic)

    def reached(self, step: str) -> None:
        """Where an exactly-once task is."""

    def identity(self) -> TaskIdentity:
        raise NotImplementedError

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RowsWritten:
        partition = task_context().partitionId()
        batches = (self.columns.rows(batch) for batch in iterator)
        if self.options.exactly_once:
            written = ExactlyOnceTask(self.options, self.identity(), self.reached).write(batches)
            message = RowsWritten(partition, written.rows, written.replayed)
        else:
            message = RowsWritten(partition, write_at_least_once(self.options, batches), False)
        keep_what_is_loaded()
        return message


def write_at_least_once(options: SinkOptions, batches: Iterator[Rows]) -> int:
    key = tuple(sorted(options.producer.items())), options.max_block_ms
    outlet, count = None, 0
    try:
        for rows in batches:
            if not len(rows):
                continue
            if outlet is None:
                outlet = OUTLETS.take(key) or Outlet(options.producer, options.max_block_ms)
            outlet.send(rows)
            count += len(rows)
        if outlet is not None:
            outlet.finish()
    except BaseException:
        if outlet is not None:
            outlet.close()
        raise
    if outlet is not None:
        OUTLETS.give_back(key, outlet)
    return count


class TopicBatchWriter(TopicWriter, DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise ValueError("Save mode Overwrite not allowed for Kafka. The allowed save mode is Append.")
        super().__init__(schema, options, streaming=False)

    def identity(self) -> TaskIdentity:
        assert self.options.application is not None and self.options.version is not None
        return TaskIdentity(self.options.application, self.options.version, task_context().partitionId())


class TopicStreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, streaming=True)

    def identity(self) -> TaskIdentity:
        context = task_context()
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if not query or not batch:
            raise RuntimeError(
                f"Spark gives tasks no {QUERY_PROPERTY} and {BATCH_PROPERTY}: exactlyOnce cannot be served here"
            )
        run = None if context.attemptNumber() else context.getLocalProperty(RUN_PROPERTY)
        return TaskIdentity(query, int(batch), context.partitionId(), run)


def task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a task runs in a worker of Spark"
    return context
