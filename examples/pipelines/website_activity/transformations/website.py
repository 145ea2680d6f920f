"""Page views from the topic `page-views`: kept in a table once each, and their counts by minute in a topic.

A view may come up to two minutes late, and twice. What is no page view at all goes to a table of its own. The minutes
and the sessions are in windows.sql.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
SCHEMA = "id STRING, visitor STRING, page STRING, time TIMESTAMP, load_ms INT"

spark = SparkSession.active()


def views_read() -> DataFrame:
    """Every record; without a view where it is none.

    A function and no view: Spark's own runner wants to know the columns of a frame that gets a watermark in Python.
    """
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
    views = views_read().where("view.id IS NOT NULL AND view.time IS NOT NULL").select("view.*")
    return views.withWatermark("time", "2 minutes").dropDuplicatesWithinWatermark(["id"])


@dp.table
def rejected() -> DataFrame:
    """What is no page view, and where it lies in the topic."""
    rows = views_read().where("view.id IS NULL OR view.time IS NULL")
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
    row = F.struct("minute", "page", "views", "load_ms")
    minutes = spark.readStream.table("minutes")
    return minutes.select(F.col("page").alias("key"), F.to_json(row).alias("value"))
