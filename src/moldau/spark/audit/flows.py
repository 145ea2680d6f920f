"""The frames of an audit's flows, for the files of a project (see `project`):

produced(spark, settings)              the producers' messages
counted_topics(spark, settings)        what the topics hold, by window
counted_table(frame, topic, settings)  what a table holds of a topic, by window
compared(spark, settings)              the result, as `moldau audit` shows it, by the clock alone
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow  # also for Spark, which looks up what a task's function is annotated with

from moldau.audit.comparison import By, Evidence, always, compare, document
from moldau.audit.messages import SCHEMA
from moldau.spark.audit.reading import begins_in, counts_in, lives_in, parts_in
from moldau.spark.audit.settings import AuditSettings, read_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = 1
"""How far back the comparison looks."""
RESULT = (
    "topic STRING, begin TIMESTAMP, end TIMESTAMP, state STRING, verdict STRING, produced BIGINT, in_topic BIGINT, "
    "in_lake BIGINT, lost BIGINT, doubled BIGINT, lost_in_topic BIGINT, doubled_in_topic BIGINT, lost_in_lake BIGINT, "
    "doubled_in_lake BIGINT, notes ARRAY<STRING>"
)


def session_settings(spark: SparkSession) -> AuditSettings:
    """From the session's configuration, where a run has put the project's."""
    return read_settings(spark.conf.getAll)


def produced(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    """A message of the audit topic in a row. Older ones of a key may be compacted away: they do not count."""
    from pyspark.sql import functions as F

    rows = topic_rows(spark, settings, settings.audit_topic, "value,timestamp")
    message = F.from_json(F.col("value").cast("string"), SCHEMA).alias("message")
    date = F.to_date(F.coalesce(F.timestamp_millis("window_ms"), F.col("timestamp")))
    return (
        rows.select(message, "timestamp")
        .select("message.*", "timestamp")
        .where("kind IS NOT NULL")
        .select("*", date.alias("date"))
    )


def counted_topics(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    rows = topic_rows(
        spark, settings, ",".join(settings.topics), "key,value,topic,partition,offset,timestamp"
    )
    return in_windows(rows, settings, (By.RECORDS, By.POSITIONS))


def counted_table(frame: DataFrame, topic: str, settings: AuditSettings) -> DataFrame:
    """Of a table with the columns `partition`, `offset` and `timestamp` of the records that it keeps."""
    from pyspark.sql import functions as F

    rows = frame.select(F.lit(topic).alias("topic"), "partition", "offset", "timestamp")
    return in_windows(rows, settings, (By.POSITIONS,))


def topic_rows(spark: SparkSession, settings: AuditSettings, topics: str, columns: str) -> DataFrame:
    """Committed records alone. What retention takes before it is counted is a loss in the report, and no failure."""
    options = {
        "kafka.isolation.level": "read_committed",
        **settings.kafka,
        "subscribe": topics,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "progressGroup": settings.group,
        "columns": columns,
    }
    return spark.readStream.format("moldau").options(**options).load()


def in_windows(rows: DataFrame, settings: AuditSettings, by: tuple[By, ...]) -> DataFrame:
    from moldau.spark.audit.counting import COUNTED, counted

    return rows.mapInArrow(functools.partial(counted, window_ms=settings.rules.window_ms, by=by), COUNTED)


def compared(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    """Of the windows of the last day. It does not know how far the flows have come: see `moldau audit` for that."""
    from pyspark.sql import functions as F

    recent = F.col("date") >= F.date_sub(F.current_date(), DAYS)
    messages = spark.read.table("produced").where(recent)
    sides = [spark.read.table("in_topics")] + ([spark.read.table("in_lake")] if settings.tables else [])
    firsts = (
        sides[0]
        .groupBy("topic", "partition")
        .agg(F.min_by("window", "first_offset").alias("window"), F.min("first_offset").alias("first_offset"))
    )
    lives = (
        messages.where("kind = 'life'")
        .drop("topic")
        .crossJoin(sides[0].where(recent).select("topic").distinct())
    )
    rows = tagged(messages.where("kind = 'counts'"), "counts").unionByName(tagged(lives, "life"))
    for name, frame in zip(("topic", "lake"), sides, strict=False):
        rows = rows.unionByName(tagged(frame.where(recent), name), allowMissingColumns=True)
    rows = rows.unionByName(tagged(firsts, "first"), allowMissingColumns=True)
    return rows.groupBy("topic").applyInArrow(comparing(settings), RESULT)


def tagged(frame: DataFrame, side: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withColumn("side", F.lit(side))


def comparing(settings: AuditSettings) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """A topic's rows into its windows; runs in a task."""

    def of_topic(table: pyarrow.Table) -> pyarrow.Table:
        now_ms = time.time_ns() // 1_000_000
        sides: dict[str, list[dict[str, Any]]] = {}
        for row in table.to_pylist():
            sides.setdefault(row["side"], []).append(row)
        evidence = Evidence(
            counts_in(sides.get("counts", [])),
            lives_in(sides.get("life", [])),
            parts_in(sides.get("topic", [])),
            parts_in(sides.get("lake", [])),
            begins_in(sides.get("first", [])),
        )
        rows = map(document, compare(evidence, settings.rules, now_ms, always(now_ms)))
        return pyarrow.Table.from_pylist(list(with_times(rows)), schema=result_schema())

    return of_topic


def with_times(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**row, "begin": row["begin_ms"] * 1000, "end": row["end_ms"] * 1000}


def result_schema() -> pyarrow.Schema:
    types = {
        "STRING": pyarrow.string(),
        "BIGINT": pyarrow.int64(),
        "TIMESTAMP": pyarrow.timestamp("us", "UTC"),
        "ARRAY<STRING>": pyarrow.list_(pyarrow.string()),
    }
    return pyarrow.schema(
        [(name, types[type_]) for name, type_ in (one.split() for one in RESULT.split(", "))]
    )
