"""Orders, enriched with what is known of their customers and routed to topics; and matched with their payments.

Orders and payments may come up to two minutes late, and twice. Test orders are left out. What is no order and no
payment goes to the dead letters.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
ORDER = "id STRING, customer STRING, amount_cents INT, time TIMESTAMP, test BOOLEAN, broken STRING"
PAYMENT = "id STRING, order STRING, amount_cents INT, status STRING, time TIMESTAMP, broken STRING"
CUSTOMER = "revision INT, country STRING, tier STRING, broken STRING"
IS_ORDER = (
    "one.broken IS NULL AND one.id IS NOT NULL AND one.customer IS NOT NULL AND one.time IS NOT NULL "
    "AND coalesce(one.amount_cents > 0, false)"
)
IS_PAYMENT = (
    "one.broken IS NULL AND one.id IS NOT NULL AND one.order IS NOT NULL AND one.time IS NOT NULL "
    "AND coalesce(one.amount_cents > 0, false) AND one.status IS NOT NULL"
)
IS_CUSTOMER = (
    "one.broken IS NULL AND one.revision IS NOT NULL AND one.country IS NOT NULL AND one.tier IS NOT NULL"
)
LATE = "2 minutes"
HOME = "DE"

spark = SparkSession.active()


def parsed(rows: DataFrame, schema: str) -> DataFrame:
    """With the value as a struct `one`; its field `broken` has the text of a value that does not fit."""
    text = F.col("value").cast("string")
    return rows.withColumn("one", F.from_json(text, schema, {"columnNameOfCorruptRecord": "broken"}))


def stream(topic: str) -> DataFrame:
    return (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def orders_read() -> DataFrame:
    rows = parsed(stream("orders"), ORDER)
    return rows.withColumn("is_right", F.expr(IS_ORDER))


def payments_read() -> DataFrame:
    rows = parsed(stream("payments"), PAYMENT)
    return rows.withColumn("is_right", F.expr(IS_PAYMENT))


def orders_once() -> DataFrame:
    """Every real order, once."""
    orders = orders_read().where("is_right").select("one.*").drop("broken")
    once = orders.withWatermark("time", LATE).dropDuplicatesWithinWatermark(["id"])
    return once.where("NOT coalesce(test, false)").drop("test")


def payments_once() -> DataFrame:
    """Every payment that went through, once."""
    payments = payments_read().where("is_right").select("one.*").drop("broken")
    return (
        payments.where("status = 'captured'")
        .withWatermark("time", LATE)
        .dropDuplicatesWithinWatermark(["id"])
    )


def customers() -> DataFrame:
    """The last that the topic says of each; a tombstone forgets one."""
    rows = (
        spark.read.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "customers")
        .load()
    )
    told = parsed(rows, CUSTOMER).where(f"value IS NULL OR ({IS_CUSTOMER})")
    customer = F.when(F.col("value").isNotNull(), F.struct("one.revision", "one.country", "one.tier"))
    # A key's records are all in one partition, so that offsets tell which is the last.
    last = told.groupBy(F.col("key").cast("string").alias("customer")).agg(
        F.max_by(F.struct(customer.alias("known")), "offset").alias("last")
    )
    return last.where("last.known IS NOT NULL").select("customer", "last.known.*")


def record(*columns: str | Column) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value")


# Without the option `topic` every row names its own. A batch that is run again may meet a customer who has changed
# meanwhile: its rows are compared by their number only.
TO_TOPICS = {"kafka.bootstrap.servers": BROKERS, "exactlyOnce": "true"}
dp.create_sink("routes", "moldau", {**TO_TOPICS, "replayCheck": "rows"})
dp.create_sink("matches", "moldau", TO_TOPICS)
dp.create_sink("dead_letters", "moldau", {**TO_TOPICS, "topic": "dead-letters"})


@dp.append_flow(target="routes")
def route_orders() -> DataFrame:
    """Stream-table join: each order with its customer as known now, to the topic of those who handle it."""
    known = F.broadcast(customers())
    orders = orders_once().join(known, "customer", "left")
    topic = (
        F.when(F.col("revision").isNull(), "orders-unknown")
        .when(F.col("tier") == "vip", "orders-vip")
        .when(F.col("country") != HOME, "orders-export")
        .otherwise("orders-standard")
    )
    columns = ("id", "customer", "amount_cents", "time", "revision", "country", "tier")
    return orders.select(topic.alias("topic"), F.col("customer").alias("key"), record(*columns))


@dp.append_flow(target="matches")
def match_payments() -> DataFrame:
    """Stream-stream join: an order is to be paid within half an hour. What has no partner is known to have none when
    the watermark has passed the time in which one could have come."""
    orders = orders_once().alias("o")
    payments = payments_once().alias("p")
    in_time = F.expr("p.order = o.id AND p.time >= o.time AND p.time <= o.time + INTERVAL 30 MINUTES")
    topic = (
        F.when(F.col("p.id").isNull(), "orders-unpaid")
        .when(F.col("o.id").isNull(), "payments-unmatched")
        .otherwise("orders-paid")
    )
    row = record(
        F.coalesce("o.id", "p.order").alias("order"),
        F.col("o.customer").alias("customer"),
        F.col("o.amount_cents").alias("amount_cents"),
        F.col("o.time").alias("ordered"),
        F.col("p.id").alias("payment"),
        F.col("p.amount_cents").alias("paid_cents"),
        F.col("p.time").alias("paid"),
    )
    joined = orders.join(payments, in_time, "full_outer")
    return joined.select(topic.alias("topic"), F.coalesce("o.id", "p.order").alias("key"), row)


def letters(read: DataFrame, what: str) -> DataFrame:
    """What is none of its kind, as it was, with where it lay and why it is here in its headers."""
    rows = read.where("NOT is_right")
    reason = F.when(F.col("one.broken").isNotNull(), "no JSON of its schema").otherwise(f"no whole {what}")
    told = {
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "reason": reason,
    }
    headers = [
        F.struct(F.lit(key).alias("key"), value.cast("string").cast("binary").alias("value"))
        for key, value in told.items()
    ]
    return rows.select("key", "value", F.array(*headers).alias("headers"))


@dp.append_flow(target="dead_letters")
def dead_orders() -> DataFrame:
    return letters(orders_read(), "order")


@dp.append_flow(target="dead_letters")
def dead_payments() -> DataFrame:
    return letters(payments_read(), "payment")
