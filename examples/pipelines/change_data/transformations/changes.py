"""Changes of a shop's customers and products, from the compacted topics `customers` and `products`, as tables.

A record is a row as it is now; one without a value is a deletion. Customers carry the version of their database in a
header, which a deletion has too: what a connector sends once more after a restart is older than what is known, and
changes nothing. Products carry no version: there the order in the topic counts, which is that of each key.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
CUSTOMER = "name STRING, city STRING, plan STRING"
PRODUCT = "title STRING, cents LONG"
VERSION = (
    "try_cast(CAST(get(filter(headers, header -> header.key = 'version'), 0).value AS STRING) AS BIGINT)"
)

spark = SparkSession.active()


def records(topic: str, schema: str) -> DataFrame:
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")  # a batch is merged in memory
        .option("valueFormat", "json")
        .option("valueSchema", schema)
        .option("columns", "key,value,topic,partition,offset,headers,corruptValue")
        .load()
    )
    return rows.withColumns(
        {
            "key": F.col("key").cast("string"),
            "is_deleted": F.expr("value IS NULL AND corruptValue IS NULL"),
        }
    )


@dp.temporary_view
def customer_records() -> DataFrame:
    id_ = F.from_json("key", "id LONG").getField("id")
    rows = records("customers", CUSTOMER).withColumns({"id": id_, "version": F.expr(VERSION)})
    reason = """CASE
        WHEN corruptValue IS NOT NULL THEN 'not the JSON of a customer'
        WHEN id IS NULL THEN 'no id in the key'
        WHEN version IS NULL THEN 'no version'
    END"""
    return rows.withColumn("reason", F.expr(reason))


@dp.temporary_view
def customer_changes() -> DataFrame:
    rows = spark.readStream.table("customer_records").where("reason IS NULL")
    return rows.select("id", "value.*", "version", "is_deleted")


@dp.temporary_view
def product_changes() -> DataFrame:
    """By their keys, which are texts."""
    rows = records("products", PRODUCT).where("corruptValue IS NULL")
    return rows.select(F.col("key").alias("sku"), "value.*", "offset", "is_deleted")


@dp.table
def rejected() -> DataFrame:
    """What is no change, and where it lies."""
    customers = spark.readStream.table("customer_records").where("reason IS NOT NULL")
    products = records("products", PRODUCT).where("corruptValue IS NOT NULL")
    products = products.withColumn("reason", F.lit("not the JSON of a product"))
    columns = ("topic", "partition", "offset", "key", "reason")
    return customers.select(*columns).unionByName(products.select(*columns))


dp.create_streaming_table("customers", comment="Each customer as he is now.")
dp.create_auto_cdc_flow(
    target="customers",
    source="customer_changes",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="is_deleted",
    except_column_list=["version", "is_deleted"],
    stored_as_scd_type=1,
)

dp.create_streaming_table(
    "customer_history", comment="Each customer as he ever was, and from when until when."
)
dp.create_auto_cdc_flow(
    target="customer_history",
    source="customer_changes",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="is_deleted",
    except_column_list=["version", "is_deleted"],
    stored_as_scd_type=2,
)
