"""Page views from the topic `page-views`: kept in a table once each, counted by minute into a topic, cut into sessions.

A view may come up to two minutes late, and twice. What is no page view at all goes to a table of its own.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
SCHEMA = "id STRING, visitor STRING, page STRING, time TIMESTAMP, load_ms INT"
LATE = "2 minutes"
SESSION_GAP = "5 minutes"

spark = SparkSession.active()


@dp.temporary_view
def views_read() -> DataFrame:
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "page-views")
        .option("startingOffsets", "earliest")
        .load()
    )
    text = F.col("value").cast("string")
    return rows.select(F.from_json(text, SCHEMA).alias("view"), text.alias("text"), "partition", "offset")


@dp.table
def page_views() -> DataFrame:
    """Every view, once."""
    views = spark.readStream.table("views_read").where("view.id IS NOT NULL AND view.time IS NOT NULL")
    return views.select("view.*").withWatermark("time", LATE).dropDuplicatesWithinWatermark(["id"])


@dp.table
def rejected() -> DataFrame:
    """What is no page view, and where it lies in the topic."""
    rows = spark.readStream.table("views_read").where("view.id IS NULL OR view.time IS NULL")
    return rows.select("partition", "offset", "text")


dp.create_sink(
    "views_per_minute",
    "moldau",
    {
        "kafka.bootstrap.servers": BROKERS,
        "topic": "page-views-per-minute",
        "exactlyOnce": "true",
    },
)


@dp.append_flow(target="views_per_minute")
def count_by_minute() -> DataFrame:
    counted = (
        spark.readStream.table("page_views")
        .withWatermark("time", LATE)
        .groupBy(F.window("time", "1 minute"), "page")
        .agg(F.count("*").alias("views"), F.round(F.avg("load_ms"), 1).alias("load_ms"))
    )
    row = F.struct(F.col("window.start").alias("minute"), "page", "views", "load_ms")
    return counted.select(F.col("page").alias("key"), F.to_json(row).alias("value"))


@dp.table
def sessions() -> DataFrame:
    """A visitor's views with no more than five minutes between them."""
    return (
        spark.readStream.table("page_views")
        .withWatermark("time", LATE)
        .groupBy(F.session_window("time", SESSION_GAP).alias("session"), "visitor")
        .agg(F.count("*").alias("views"))
        .select("visitor", "session.start", "session.end", "views")
    )
