"""Metrics of hosts from the topic `host-metrics`: each sample into a table once, alerts into a topic once.

A sample may come up to two minutes late, and twice. Alerts, which windows.sql finds, go to the topic `alerts`; what is
no sample goes to the topic `host-metrics-rejected` as it came, with the reason in a header.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
SCHEMA = "host STRING, time TIMESTAMP, cpu DOUBLE, memory DOUBLE, disk DOUBLE, requests LONG, errors LONG"
WRONG = """CASE
    WHEN corruptValue IS NOT NULL THEN 'not the JSON of a sample'
    WHEN value.host IS NULL OR value.time IS NULL THEN 'no host or no time'
    WHEN NOT coalesce(value.cpu BETWEEN 0 AND 100 AND value.memory BETWEEN 0 AND 100
        AND value.disk BETWEEN 0 AND 100, false) THEN 'no percentage'
    WHEN NOT coalesce(value.requests >= 0 AND value.errors >= 0, false) THEN 'no count'
END"""

spark = SparkSession.active()


def received() -> DataFrame:
    """Every record, with what is wrong with it.

    A function and no view: Spark's own runner wants to know the columns of a frame that gets a watermark.
    """
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "host-metrics")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .option("columns", "key,value,partition,offset,corruptValue")
        .load()
    )
    return rows.withColumn("reason", F.expr(WRONG))


@dp.table
def samples() -> DataFrame:
    """Every sample, once: a host has one for a time."""
    good = received().where("reason IS NULL").select("value.*")
    return good.withWatermark("time", "2 minutes").dropDuplicatesWithinWatermark(["host", "time"])


def topic(name: str) -> dict[str, str]:
    """The options of a sink that writes every row to a topic once."""
    return {"kafka.bootstrap.servers": BROKERS, "topic": name, "exactlyOnce": "true"}


def header(column: str) -> Column:
    text = F.col(column).cast("string").cast("binary")
    return F.struct(F.lit(column).alias("key"), text.alias("value"))


dp.create_sink("rejected", "moldau", topic("host-metrics-rejected"))


@dp.append_flow(target="rejected")
def reject() -> DataFrame:
    rows = received().where("reason IS NOT NULL")
    headers = F.array(*(header(name) for name in ("reason", "partition", "offset")))
    value = F.coalesce("corruptValue", F.to_json("value").cast("binary"))
    return rows.select("key", value.alias("value"), headers.alias("headers"))


def alerts(view: str) -> DataFrame:
    """A record for each row of the view."""
    document = F.struct("host", "rule", "value", "start", "end")
    return spark.readStream.table(view).select(F.col("host").alias("key"), F.to_json(document).alias("value"))


dp.create_sink("alerts", "moldau", topic("alerts"))


@dp.append_flow(target="alerts")
def too_much() -> DataFrame:
    return alerts("breaches")


@dp.append_flow(target="alerts")
def silent() -> DataFrame:
    return alerts("silences")
