"""`format("moldau")` reads topics: as a table, and as a stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]


@pytest.fixture(scope="module")
def topics(target: str) -> Topics:
    return Topics(target)


@pytest.fixture
def read(spark: SparkSession, target: str) -> Read:
    return lambda **options: (
        spark.read.format("moldau").option("kafka.bootstrap.servers", target).options(**options).load()
    )


@pytest.fixture
def stream(spark: SparkSession, target: str) -> Read:
    return lambda **options: (
        spark.readStream.format("moldau").option("kafka.bootstrap.servers", target).options(**options).load()
    )


def values(frame: DataFrame) -> list[str]:
    return [row[0] for row in frame.selectExpr("cast(value as string)", "offset").sort("offset").collect()]


def available(frame: DataFrame, checkpoint: Path, **options: str) -> list[tuple[int, list[str]]]:
    """What a query reads until it has caught up: the values of each batch."""
    batches: list[tuple[int, list[str]]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: batches.append((number, values(batch))))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return batches


def test_it_is_found_without_being_registered_and_has_the_columns_of_sparks_connector(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("columns"), 2)
    topics.fill(
        topic, ["a"], 1, keys=["k"], timestamp_ms=1_700_000_000_123, headers=[("h", b"1"), ("n", None)]
    )
    frame = read(subscribe=topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    (row,) = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (
        b"k",
        b"a",
        topic,
        1,
        0,
    )
    assert (row.ms, row.timestampType) == (1_700_000_000_123, 0)
    assert [(header.key, header.value) for header in row.headers] == [("h", b"1"), ("n", None)]


def test_a_frame_shows_what_came_since_and_misses_nothing_that_retention_took(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("again"), 2)
    frame = read(subscribe=topic)
    assert frame.count() == 0
    topics.fill(topic, ["a", "b"], 1)
    assert values(frame) == ["a", "b"]
    topics.fill(topic, ["c"], 1)
    topics.trim(topic, 1, 1)
    assert values(frame) == ["b", "c"]
    fixed = read(subscribe=topic, endingOffsets=f'{{"{topic}":{{"0":0,"1":3}}}}')
    assert fixed.count() == 2
    topics.fill(topic, ["d"], 1)
    assert (fixed.count(), frame.count()) == (2, 3)


def test_partitions_with_few_records_share_a_task_in_their_order(
    read: Read, stream: Read, topics: Topics, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topics.create(topic_names("small"), 5)
    for partition in range(5):
        topics.fill(topic, range(partition * 10, partition * 10 + 4), partition)
    columns = "spark_partition_id() as task", "partition", "offset", "cast(value as string) as value"
    together = read(subscribe=topic).selectExpr(*columns).collect()
    assert [tuple(row) for row in together] == [
        (0, partition, offset, str(partition * 10 + offset)) for partition in range(5) for offset in range(4)
    ]
    apart = read(subscribe=topic, minOffsetsPerTask="1").selectExpr(*columns).collect()
    assert [row.task for row in apart] == [row.partition for row in together]
    tasks: list[int] = []
    query = (
        stream(subscribe=topic, startingOffsets="earliest")
        .writeStream.foreachBatch(lambda batch, number: tasks.append(batch.rdd.getNumPartitions()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert tasks == [1]


def test_a_topic_that_is_joined_as_a_table_is_read_anew_for_every_batch(
    read: Read,
    stream: Read,
    spark: SparkSession,
    topics: Topics,
    topic_names: Callable[[str], str],
    tmp_path: Path,
) -> None:
    from pyspark.sql import functions as F

    orders, customers = topics.create(topic_names("joined")), topics.create(topic_names("towns"))
    topics.fill(customers, ["Prague"], keys=["c"])
    topics.fill(orders, ["first"], keys=["c"])
    columns = "cast(key as string) as key", "cast(value as string) as value", "offset"
    table = read(subscribe=customers).selectExpr(*columns)
    towns = table.groupBy("key").agg(F.max_by("value", "offset").alias("town"))
    arriving = stream(subscribe=orders, startingOffsets="earliest").selectExpr(*columns)
    query = (
        arriving.join(F.broadcast(towns), "key", "left")
        .select("value", "town")
        .writeStream.format("memory")
        .queryName("joined")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        topics.fill(customers, ["Hamburg"], keys=["c"])
        topics.fill(orders, ["second"], keys=["c"])
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted(tuple(row) for row in spark.table("joined").collect())
    assert found == [("first", "Prague"), ("second", "Hamburg")]


def test_a_stream_reads_what_is_there_and_goes_on_from_its_checkpoint(
    stream: Read, topics: Topics, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topics.create(topic_names("stream"))
    topics.fill(topic, range(10))
    frame = stream(subscribe=topic, startingOffsets="earliest")
    assert available(frame, tmp_path) == [(0, [str(number) for number in range(10)])]
    topics.fill(topic, range(10, 15))
    assert available(frame, tmp_path) == [(1, [str(number) for number in range(10, 15)])]
    assert available(frame, tmp_path) == []


def test_a_trigger_takes_about_as_many_bytes_as_it_may(
    stream: Read, topics: Topics, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topics.create(topic_names("bytes"))
    topics.fill(topic, ["x" * 1000] * 40)
    frame = stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="15000")
    sizes = [len(batch) for _, batch in available(frame, tmp_path)]
    assert sizes == [15, 15, 10]


def test_columns_that_nobody_asks_for_are_left_out(
    spark: SparkSession, read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("pruned"))
    topics.fill(topic, ["a", "b"])
    assert [tuple(row) for row in read(subscribe=topic, columns="offset, Value").collect()] == [
        (0, b"a"),
        (1, b"b"),
    ]
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", topics.bootstrap_servers)
    by_schema = reader.schema("value string, partition int").option("subscribe", topic)
    assert [tuple(row) for row in by_schema.load().collect()] == [("a", 0), ("b", 0)]
    with pytest.raises(Exception, match="The schema has a column 'age'"):
        reader.schema("age int").load().collect()
    with pytest.raises(Exception, match="Option 'columns' names age"):
        read(subscribe=topic, columns="value,age")


def test_json_is_decoded_by_a_schema_and_bad_values_stand_apart(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("json"))
    topics.fill(topic, ['{"id": 1, "page": "/a"}', "oops", None, '{"page": "/b", "id": 2}'])
    frame = read(subscribe=topic, valueFormat="json", valueSchema="id LONG, page STRING")
    rows = frame.selectExpr("value.id", "value.page", "cast(corruptValue as string)", "offset").sort("offset")
    assert [tuple(row) for row in rows.collect()] == [
        (1, "/a", None, 0),
        (None, None, "oops", 1),
        (None, None, None, 2),
        (2, "/b", None, 3),
    ]


def test_the_mode_of_bad_values_is_that_of_sparks_readers(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("modes"))
    topics.fill(topic, ['{"id": 1}', "oops", '{"id": 2}'])
    dropped = read(subscribe=topic, valueSchema="id LONG", mode="dropMalformed")
    assert "corruptValue" not in dropped.columns
    assert [row.id for row in dropped.select("value.id", "offset").sort("offset").collect()] == [1, 2]
    failing = read(subscribe=topic, valueSchema="id LONG", mode="FAILFAST")
    assert "corruptValue" not in failing.columns
    with pytest.raises(Exception, match=f"{topic}, partition 0, offset 1: the value is no JSON object"):
        failing.select("value.id").collect()
    assert "corruptValue" in read(subscribe=topic, valueSchema="id LONG", mode="PERMISSIVE").columns
    with pytest.raises(Exception, match="'mode' are for values that are decoded"):
        read(subscribe=topic, mode="FAILFAST").collect()


def test_bad_values_go_to_the_dead_letter_topic(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic, dead = topics.create(topic_names("letters")), topics.create(topic_names("dead"))
    topics.fill(topic, ['{"id": 1}', "oops", '{"id": 2}'], keys=["a", "b", "c"], headers=[("h", b"1")])
    frame = read(subscribe=topic, valueSchema="id LONG", deadLetterTopic=dead)
    assert [row.id for row in frame.select("value.id", "offset").sort("offset").collect()] == [1, 2]
    letters = read(subscribe=dead, includeHeaders="true").collect()
    assert {(bytes(row.key), bytes(row.value)) for row in letters} == {(b"b", b"oops")}
    found = {header.key: bytes(header.value) for header in letters[0].headers}
    reason = found.pop("moldau.reason")
    assert found == {
        "h": b"1",
        "moldau.topic": topic.encode(),
        "moldau.partition": b"0",
        "moldau.offset": b"1",
    }
    assert reason == b"the value is no JSON object"


def test_the_page_on_reading_is_true(
    spark: SparkSession, topics: Topics, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    section = re.split(r"^## ", page.partition("## Reading\n")[2], flags=re.M)[0]
    section = re.sub(r"^### From a cluster with TLS.*?(?=^### )", "", section, flags=re.M | re.S)
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    names = {name: topics.create(topic_names(f"page-{name}")) for name in ("orders", "views")}
    topics.fill(names["views"], ['{"page": "/a", "at": "2026-01-02T03:04:05Z"}'])
    known: dict[str, Any] = {}
    for block in blocks:
        for name, own in names.items():
            block = block.replace(f'"subscribe", "{name}"', f'"subscribe", "{own}"')
        block = block.replace("localhost:9092", topics.bootstrap_servers)
        exec(block.replace("/tmp/orders-checkpoint", str(tmp_path)), known)
    assert known["views"].schema.simpleString() == "struct<page:string,at:timestamp>"
    known["query"].processAllAvailable()
    known["query"].stop()
    assert len(blocks) == 3
