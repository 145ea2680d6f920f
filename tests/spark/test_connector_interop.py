"""Spark's own Kafka connector, `format("kafka")`, at work on Moldau: streams from and to topics, by pattern and by
time, with transactions, in Real-Time Mode, and while leaders die.

What a batch reads and writes, option by option, is compared in test_source_as_sparks_connector and
test_sink_as_sparks_connector.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from moldau.testing import Cluster
from spark.sink_readers import committed_messages
from spark.source_topics import TIMEOUT_S, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

DEADLINE_S = 240.0
TIMES = 1_700_000_000_000
BATCH_S = 60
"""In Real-Time Mode: what comes out while the first batch lasts has not waited for its end."""
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Names = Callable[[str], str]


@pytest.fixture(scope="module")
def topics(target: str) -> Topics:
    return Topics(target)


def stream(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    given = {"startingOffsets": "earliest", "kafka.metadata.max.age.ms": "500"} | options
    if "startingTimestamp" in options:
        del given["startingOffsets"]
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return reader.options(**given).load()


def into_topic(frame: DataFrame, servers: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", topic).option("checkpointLocation", str(checkpoint))


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    query = writer.start()
    try:
        yield query
        failure = query.exception()
        assert failure is None, failure
    finally:
        query.stop()


def caught_up(frame: DataFrame, checkpoint: Path) -> list[Any]:
    """The rows of a query that runs until it has caught up."""
    found: list[Any] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.extend(batch.select("topic", "partition", "offset", "value").collect())

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    return found


class Reading:
    """What comes into a topic, as it comes."""

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reading", "fetch.wait.max.ms": 10}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.found: list[Message] = []

    def until(self, enough: Callable[[list[bytes]], bool], query: StreamingQuery) -> list[bytes]:
        deadline_s = time.monotonic() + DEADLINE_S
        while not enough(self.values):
            assert time.monotonic() < deadline_s, f"{len(self.found)} messages, {query.status}"
            assert query.isActive, query.exception()
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found.append(message)
        return self.values

    def all_of(self, wanted: set[bytes], query: StreamingQuery) -> None:
        self.until(lambda values: wanted <= set(values), query)

    @property
    def values(self) -> list[bytes]:
        return [message.value() for message in self.found]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(servers: str, topic: str, partitions: int = 1) -> Iterator[Reading]:
    reader = Reading(servers, topic, partitions)
    try:
        yield reader
    finally:
        reader.close()


def texts(*bounds: int) -> set[bytes]:
    return {b"%d" % number for number in range(*bounds)}


def test_topics_of_a_pattern_are_copied_and_one_that_is_created_meanwhile_too(
    spark_with_connector: SparkSession, target: str, topics: Topics, topic_names: Names, tmp_path: Path
) -> None:
    name = topic_names("many")
    for number in range(2):
        topics.create(f"{name}-{number}", 2)
        topics.fill(f"{name}-{number}", range(10 * number, 10 * number + 10), number, headers=[("h", b"1")])
    out = topics.create(topic_names("all"))
    frame = stream(spark_with_connector, target, subscribePattern=f"{name}-.*", includeHeaders="true")
    copied = frame.select("key", "value", "headers")
    with (
        running(into_topic(copied, target, out, tmp_path)) as query,
        reading(target, out) as reader,
    ):
        reader.all_of(texts(20), query)
        topics.create(f"{name}-later")
        topics.fill(f"{name}-later", range(20, 25), headers=[("h", b"1")])
        reader.all_of(texts(25), query)
    assert Counter(reader.values) == Counter(texts(25))
    assert {tuple(message.headers() or ()) for message in reader.found} == {(("h", b"1"),)}


def test_a_stream_begins_at_a_time(
    spark_with_connector: SparkSession, target: str, topics: Topics, topic_names: Names, tmp_path: Path
) -> None:
    topic = topics.create(topic_names("timed"), 2)
    for minute in range(3):
        for partition in range(2):
            topics.fill(topic, [f"{minute}"] * 5, partition, timestamp_ms=TIMES + 60_000 * minute)
    frame = stream(spark_with_connector, target, subscribe=topic, startingTimestamp=str(TIMES + 60_000))
    found = caught_up(frame, tmp_path)
    assert sorted((row.partition, row.offset) for row in found) == [
        (partition, offset) for partition in range(2) for offset in range(5, 15)
    ]
    topics.fill(topic, ["after"], 1, timestamp_ms=TIMES)
    assert [row.value for row in caught_up(frame, tmp_path)] == [b"after"], (
        "a checkpoint has offsets, no times"
    )


def test_a_committed_reader_waits_for_a_transactions_end(
    spark_with_connector: SparkSession, target: str, topics: Topics, topic_names: Names, tmp_path: Path
) -> None:
    topic, out = topics.create(topic_names("open")), topics.create(topic_names("committed"))
    producer = Producer({"bootstrap.servers": target, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)

    def transact(*bounds: int) -> None:
        producer.begin_transaction()
        for number in range(*bounds):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(TIMEOUT_S) == 0

    frame = stream(
        spark_with_connector, target, subscribe=topic, **{"kafka.isolation.level": "read_committed"}
    ).select("value")
    with running(into_topic(frame, target, out, tmp_path)) as query, reading(target, out) as reader:
        transact(10)
        producer.commit_transaction(TIMEOUT_S)
        reader.all_of(texts(10), query)
        transact(10, 20)
        producer.abort_transaction(TIMEOUT_S)
        transact(20, 30)
        topics.fill(topic, range(30, 35))  # they stand behind the open transaction
        query.processAllAvailable()
        producer.commit_transaction(TIMEOUT_S)
        reader.all_of(texts(20, 35), query)
    assert Counter(reader.values) == Counter(texts(10) | texts(20, 35))
    positions = [int(value) for value in reader.values]
    assert positions == sorted(positions), "what waited came in the log's order"


def real_time(writer: DataStreamWriter) -> DataStreamWriter:
    return writer.outputMode("update").trigger(realTime=f"{BATCH_S} seconds")


def test_in_real_time_mode_rows_go_through_within_a_batch_and_go_on_after_a_stop(
    spark_with_connector: SparkSession, target: str, topics: Topics, topic_names: Names, tmp_path: Path
) -> None:
    topic, out = topics.create(topic_names("now"), 2), topics.create(topic_names("at-once"))
    frame = stream(spark_with_connector, target, subscribe=topic).selectExpr(
        "concat('seen ', cast(value as string)) as value"
    )
    first_end = tmp_path / "commits" / "0"
    with reading(target, out) as reader:
        for turn in range(2):
            with running(real_time(into_topic(frame, target, out, tmp_path))) as query:
                for number in range(5 * turn, 5 * turn + 5):
                    topics.fill(topic, [number], number % 2)
                    reader.all_of({b"seen %d" % number}, query)
                    assert not first_end.exists(), "it has come with the end of the batch"


def test_in_real_time_mode_counts_come_within_a_batch(
    spark_with_connector: SparkSession, target: str, topics: Topics, topic_names: Names, tmp_path: Path
) -> None:
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    }
    spark = spark_with_connector.newSession()
    for key, value in settings.items():
        spark.conf.set(key, value)
    topic, out = topics.create(topic_names("words")), topics.create(topic_names("counts"))
    counts = stream(spark, target, subscribe=topic).groupBy("value").count()
    frame = counts.selectExpr("value as key", "cast(count as string) as value")
    with (
        running(real_time(into_topic(frame, target, out, tmp_path))) as query,
        reading(target, out) as reader,
    ):
        for number in range(1, 4):
            topics.fill(topic, ["a"])
            reader.all_of({b"%d" % number}, query)
        assert not (tmp_path / "commits" / "0").exists()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


def kill_the_leader(cluster: Cluster, topic: str) -> int:
    broker = cluster.wait_for_leader(topic, 0)
    cluster.kill(broker)
    for partition in range(2):
        cluster.wait_for_leader(topic, partition)
    return broker


def test_a_stream_is_copied_while_leaders_are_killed(
    spark_with_connector: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    for name in ("in", "out"):
        cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})

    def add(*bounds: int) -> None:
        for number in range(*bounds):
            producer.produce("in", b"%d" % number, partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0

    frame = stream(spark_with_connector, servers, subscribe="in", maxOffsetsPerTrigger="100")
    with (
        running(into_topic(frame.select("value"), servers, "out", tmp_path / "copying")) as query,
        reading(servers, "out", 2) as reader,
    ):
        added = 0
        for killed in ("in", "out", "in"):
            add(added, added + 300)
            added += 300
            broker = kill_the_leader(cluster, killed)
            add(added, added + 300)
            added += 300
            reader.all_of(texts(added), query)  # two brokers are enough
            cluster.start(broker)
            cluster.wait_in_sync()
    found = caught_up(frame, tmp_path / "reading")
    assert [row.value for row in sorted(found, key=lambda row: int(row.value))] == sorted(
        texts(added), key=int
    )


def test_a_batch_is_written_and_read_while_a_broker_is_gone(
    spark_with_connector: SparkSession, cluster: Cluster
) -> None:
    spark, servers = spark_with_connector, cluster.bootstrap_servers
    cluster.create_topic("table", 2)
    rows = spark.range(500).selectExpr("cast(id as string) as value")
    options = {"kafka.bootstrap.servers": servers}

    def save(frame: DataFrame) -> None:
        frame.write.format("kafka").options(**options).option("topic", "table").mode("append").save()

    save(rows)
    broker = kill_the_leader(cluster, "table")
    save(rows.selectExpr("concat('again ', value) as value"))
    read = spark.read.format("kafka").options(**options).option("subscribe", "table").load()
    expected = texts(500) | {b"again " + value for value in texts(500)}
    assert Counter(bytes(row.value) for row in read.collect()) == Counter(expected)
    cluster.start(broker)
    cluster.wait_in_sync()
    assert Counter(message.value() for message in committed_messages(servers, "table")) == Counter(expected)
