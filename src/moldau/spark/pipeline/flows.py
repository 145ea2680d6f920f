"""Starts one flow: a streaming query of Spark's, or the recomputation of a materialized view.

    into a streaming table     appended to its Delta table; several flows may append to one
    change data                merged into its Delta table, batch by batch
    into a sink                the sink's format and options, as declared
    a materialized view        computed from what its tables hold, replaced in one commit

Every query has a checkpoint of its own in the storage and goes on there after a restart. A flow's `spark_conf` is
in force while it is started; Spark gives a query its own copy of the session. `pipelines.trigger.interval` among
them is the pause between two batches or recomputations. With `pipelines.trigger=RealTime` rows go through one by one
(Spark's Real-Time Mode, which only its own Kafka connector serves), and the interval is how often it is noted how far
the query has come. Such a query writes in update mode, and once, until it has caught up, in ordinary batches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import Flow, Kind, Mistake, Output
from moldau.spark.pipeline.session_conf import BUILDING, INTERVAL, OWN, TRIGGER, conf_in_force
from moldau.spark.pipeline.tables import FORMAT, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

RECOMPUTE_S = 10.0
"""How often a materialized view is looked at, unless its interval says otherwise."""
REAL_TIME_S = 300.0
"""How long a batch in Real-Time Mode lasts, unless its interval says otherwise: Spark's own default."""
_DURATION = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|millis\w*|s|seconds?|m|minutes?|h|hours?)\s*", re.IGNORECASE
)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """`10 seconds`, `500 ms`, `1 minute` as seconds; None where it is no such text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    unit = found[2].lower()
    return float(found[1]) * _UNITS_S["ms" if unit.startswith(("ms", "milli")) else unit[0]]


def interval_s(flow: Flow) -> float | None:
    """The flow's own pause between two batches, where it has one."""
    text = flow.conf.get(INTERVAL)
    if text is None:
        return None
    value = seconds(text)
    if value is None:
        raise Mistake(
            flow.place, f"{INTERVAL}={text} is no duration.", "Write 10 seconds, 500 ms or 1 minute."
        )
    return value


def is_real_time(flow: Flow) -> bool:
    text = flow.conf.get(TRIGGER, "")
    if text and text.lower() != "realtime":
        raise Mistake(flow.place, f"{TRIGGER}={text} is unknown.", "Write RealTime, or leave it out.")
    return bool(text)


def job_group(flow: Flow) -> str:
    return f"moldau-recompute-{flow.name}"


class Starter:
    """Starts the flows of one project in one session."""

    def __init__(self, spark: SparkSession, tables: Tables, once: bool) -> None:
        self._spark = spark
        self._tables = tables
        self.once = once

    def start(self, flow: Flow, output: Output, frame: DataFrame) -> StreamingQuery:
        with BUILDING, conf_in_force(self._spark, flow.conf):
            writer = self._triggered(flow, frame.writeStream)
            writer = writer.queryName(flow.name).option(
                "checkpointLocation", self._tables.checkpoint(flow.target, flow.name)
            )
            if flow.change_data is not None:
                from moldau.spark.pipeline.change_data import merging

                path = self._tables.path(output.name)
                return writer.foreachBatch(merging(flow.change_data, path, output.partition_by)).start()
            if output.kind is Kind.TABLE:
                return (
                    writer.outputMode("append")
                    .format(FORMAT)
                    .options(**self._tables.write_options(output))
                    .start()
                )
            assert output.kind is Kind.SINK and output.format is not None, output
            mode = "update" if is_real_time(flow) else "append"
            return writer.outputMode(mode).format(output.format).options(**output.options).start()

    def recompute(self, flow: Flow, output: Output, frame: DataFrame) -> None:
        """A materialized view, in the calling thread."""
        context = self._spark.sparkContext
        context.setJobGroup(job_group(flow), f"recomputes {output.name}", interruptOnCancel=True)
        writer = frame.write.format(FORMAT).mode("overwrite").options(**self._tables.write_options(output))
        if flow.conf.keys() <= OWN:
            writer.save()
            return
        with BUILDING, conf_in_force(self._spark, flow.conf):  # a batch has no session of its own
            writer.save()

    def enter_thread(self) -> None:
        """For a thread of our own: Spark finds Python data sources only through the session that is active there."""
        session_class = self._spark._jvm.org.apache.spark.sql.classic.SparkSession
        session_class.setActiveSession(self._spark._jsparkSession)

    def cancel(self, flow: Flow) -> None:
        """A recomputation that is under way."""
        self._spark.sparkContext.cancelJobGroup(job_group(flow))

    def _triggered(self, flow: Flow, writer: DataStreamWriter) -> DataStreamWriter:
        if self.once:
            return writer.trigger(availableNow=True)
        pause = interval_s(flow)
        if is_real_time(flow):
            return writer.trigger(realTime=f"{int((pause or REAL_TIME_S) * 1000)} milliseconds")
        return writer if pause is None else writer.trigger(processingTime=f"{int(pause * 1000)} milliseconds")
