"""Log lines from the topic `service-logs` into a lake: each once, in folders by the date and hour of their own time.

Lines that come hours late are kept, too, which is why nothing here waits or forgets by a watermark: a line that its
service sent twice is there twice, and queries leave the second one out by its id.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
LAKE = os.environ.get("LOG_LAKE", os.path.join(os.getcwd(), "lake"))
LINES_PER_BATCH = os.environ.get("LINES_PER_BATCH", "50000")
LINE = (
    r"^(\S+Z) (DEBUG|INFO|WARN|ERROR) (\S+) (\S+) "  # when, how bad, who, id
    r"(?:(GET|POST|PUT|DELETE) (\S+) (\d{3}) (\d+)ms ?)?(.*)$"  # of a request: what, where, outcome, how long
)

spark = SparkSession.active()


def field(number: int) -> Column:
    """A part of the line, null where the line has none."""
    return F.nullif(F.regexp_extract("value", LINE, number), F.lit(""))


@dp.temporary_view
def received() -> DataFrame:
    """Every record; its time is null where it is no log line."""
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "service-logs")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", LINES_PER_BATCH)
        .option("valueFormat", "string")
        .option("columns", "value,partition,offset,timestamp,corruptValue")
        .load()
    )
    return rows.withColumn("time", field(1).try_cast("timestamp"))


dp.create_sink(
    "lines", "moldau_lake", {"path": f"{LAKE}/lines", "partitionByTime": "time", "compactAfter": "50"}
)


@dp.append_flow(target="lines")
def keep_lines() -> DataFrame:
    lines = spark.readStream.table("received").where("time IS NOT NULL")
    return lines.select(
        "time",
        field(2).alias("level"),
        field(3).alias("service"),
        field(4).alias("id"),
        field(5).alias("method"),
        field(6).alias("endpoint"),
        field(7).cast("int").alias("status"),
        field(8).cast("int").alias("duration_ms"),
        field(9).alias("message"),
        "partition",
        "offset",
    )


dp.create_sink("unparsed", "moldau_lake", {"path": f"{LAKE}/unparsed", "partitionByTime": "received"})


@dp.append_flow(target="unparsed")
def keep_the_rest() -> DataFrame:
    """What is no log line: as it came, by the time at which it did."""
    rest = spark.readStream.table("received").where("time IS NULL")
    value = F.coalesce("corruptValue", F.col("value").cast("binary"))
    return rest.select(F.col("timestamp").alias("received"), value.alias("value"), "partition", "offset")
