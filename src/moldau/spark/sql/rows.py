"""Rows as texts, made by Spark itself: one form for every type, times in the session's zone.

A table's cell is the value's text, JSON for structs, arrays and maps; a line of JSON is the whole row. A batch query
is read in pieces where it may be long, and up to a bound where a person looks. A stream's rows are read batch by
batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from moldau.spark.pipeline.sentences import sentence
from moldau.spark.sql.jobs import Cancel
from moldau.spark.sql.mistakes import Mistake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB_GROUP = "moldau-sql"
MODES = ("append", "update", "complete")
Cells = Sequence[str | None]
_COMPLEX = ("struct", "array", "map")


def in_texts(frame: DataFrame) -> DataFrame:
    """Each column as a text."""
    from pyspark.sql import functions

    numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    columns = []
    for field in numbered.schema:
        column = functions.col(field.name)
        is_complex = field.dataType.typeName() in _COMPLEX
        columns.append((functions.to_json(column) if is_complex else column.cast("string")).alias(field.name))
    return numbered.select(columns)


def in_json(frame: DataFrame) -> DataFrame:
    """Each row as one JSON object."""
    from pyspark.sql import functions

    numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    fields = [functions.col(f"c{index}").alias(name) for index, name in enumerate(frame.columns)]
    if not fields:
        return numbered.select(functions.lit("{}").alias("row"))
    row = functions.to_json(functions.struct(*fields), {"ignoreNullFields": "false"})
    return numbered.select(row.alias("row"))


def batch_rows(spark: SparkSession, frame: DataFrame, most: int | None, cancel: Cancel) -> Iterator[Cells]:
    """The rows; one more than `most` of them where there are more."""
    context = spark.sparkContext
    group = f"{JOB_GROUP}-{uuid4()}"
    cancel.by(lambda: cancel_jobs(spark, group))
    context.setJobGroup(group, "moldau sql", interruptOnCancel=True)
    rows: Any = (
        frame.toLocalIterator(prefetchPartitions=True)
        if most is None
        else iter(frame.limit(most + 1).collect())
    )
    for row in rows:
        if cancel.is_asked:
            return
        yield row


def cancel_jobs(spark: SparkSession, group: str) -> bool:
    """Of the statement that runs: its group's, and those that Spark starts for it outside the group.

    A result that comes in pieces has such jobs. All others are the streams', which are in the groups of their runs.
    """
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    scala = context._jsc.sc()
    scala.cancelJobGroupAndFutureJobs(group)
    streams = {job for query in spark.streams.active for job in tracker.getJobIdsForGroup(query.runId)}
    jobs = [job for job in tracker.getActiveJobsIds() if job not in streams]
    for job in jobs:
        scala.cancelJob(job)
    return bool(jobs)


def output_mode(spark: SparkSession, frame: DataFrame) -> str:
    """The first of Spark's output modes that a stream can be shown in."""
    from pyspark.errors import PySparkException

    jvm = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    plan = frame._jdf.queryExecution().analyzed()
    first: Exception | None = None
    for mode, one in zip(MODES, (modes.Append(), modes.Update(), modes.Complete()), strict=True):
        try:
            checker.checkForStreaming(plan, one)
        except PySparkException as error:
            first = first or error
        else:
            return mode
    assert first is not None
    raise Mistake(f"This cannot be shown as a stream: {sentence(first)}") from first


def stream_rows(
    frame: DataFrame,
    mode: str,
    checkpoint: str,
    most: int | None,
    take: Callable[[list[Cells]], None],
    cancel: Cancel,
) -> None:
    """Give each batch's rows to `take` until the stream is cancelled, fails, or has given `most`."""
    given = 0
    failed: list[BaseException] = []
    enough = threading.Event()

    def on_batch(batch: DataFrame, _number: int) -> None:
        nonlocal given
        if enough.is_set() or cancel.is_asked:
            return
        rows: list[Cells] = batch.collect()
        rows = rows if most is None else rows[: most - given]
        try:
            if rows:
                take(rows)
        except BaseException as error:
            failed.append(error)
            enough.set()
        given += len(rows)
        if most is not None and given >= most:
            enough.set()

    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
    query = writer.foreachBatch(on_batch).start()
    cancel.by(query.stop)
    try:
        while not enough.is_set() and not cancel.is_asked:
            if query.awaitTermination(1):
                break
    finally:
        with suppress(Exception):
            query.stop()
    if failed:
        raise failed[0]
    is_stopped = enough.is_set() or cancel.is_asked
    if (error := query.exception()) is not None and not is_stopped:
        raise error  # one that is stopped while it plans a batch has an error, too
