"""The same query by `format("kafka")`, Spark's own connector, and by `format("moldau")`: the same rows, tasks, errors,
and one checkpoint for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, THEIRS = "moldau", "kafka"
TIMES = 1_700_000_000_000
Read = Callable[..., "DataFrame"]


@pytest.fixture(scope="module")
def topics(target: str) -> Topics:
    return Topics(target)


@pytest.fixture(scope="module")
def orders(topics: Topics, topic_names: Callable[[str], str]) -> str:
    """Three partitions: 40 records with headers, 7 without keys, none; one value is missing, times go up."""
    topic = topics.create(topic_names("orders"), 3)
    topics.fill(
        topic, range(40), 0, keys=[f"k{number}" for number in range(40)], headers=[("a", b"1"), ("b", None)]
    )
    topics.fill(topic, ["x", None, "y", "", "z", "ä", "1"], 1, timestamp_ms=TIMES)
    topics.fill(topic, range(5), 1, timestamp_ms=TIMES + 1000)
    return topic


@pytest.fixture
def read(spark_with_connector: SparkSession, target: str) -> Read:
    def read(form: str, **options: str) -> DataFrame:
        reader = spark_with_connector.read.format(form).option("kafka.bootstrap.servers", target)
        return reader.options(**options).load()

    return read


@pytest.fixture
def stream(spark_with_connector: SparkSession, target: str) -> Read:
    def stream(form: str, **options: str) -> DataFrame:
        reader = spark_with_connector.readStream.format(form).option("kafka.bootstrap.servers", target)
        return reader.options(**options).load()

    return stream


def rows(frame: DataFrame) -> list[Any]:
    return frame.sort("topic", "partition", "offset").collect()


def tasks(frame: DataFrame) -> list[Any]:
    """The offsets that each task reads, without the tasks' numbers."""
    found = frame.selectExpr("spark_partition_id() as task", "partition", "offset").groupBy(
        "task", "partition"
    )
    bounds = found.agg({"offset": "min"}).join(found.agg({"offset": "max"}), ["task", "partition"])
    return sorted(tuple(row)[1:] for row in bounds.collect())


def batches(frame: DataFrame, checkpoint: Path) -> list[tuple[int, list[Any]]]:
    """What a query reads until it has caught up: partitions and offsets, batch by batch."""
    found: list[tuple[int, list[Any]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.append((number, sorted(tuple(row) for row in batch.select("partition", "offset").collect())))

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "{topic}"},
        {"subscribe": "{topic}", "includeHeaders": "true"},
        {"assign": '{{"{topic}":[1,2]}}'},
        {"subscribePattern": "^{topic}$"},
        {"subscribe": "{topic}", "startingOffsets": '{{"{topic}":{{"0":30,"1":-2,"2":0}}}}'},
        {
            "subscribe": "{topic}",
            "startingOffsets": '{{"{topic}":{{"0":3,"1":1,"2":-2}}}}',
            "endingOffsets": '{{"{topic}":{{"0":-1,"1":4,"2":-1}}}}',
        },
        {
            "assign": '{{"{topic}":[1]}}',
            "startingOffsetsByTimestamp": '{{"{topic}":{{"1":1700000000001}}}}',
        },
        {"assign": '{{"{topic}":[1]}}', "endingTimestamp": "1700000000001"},
        {
            "subscribe": "{topic}",
            "startingTimestamp": "99000000000000",
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ],
)
def test_a_batch_has_the_same_rows_and_schema(read: Read, orders: str, options: dict[str, str]) -> None:
    given = {key: value.format(topic=orders) for key, value in options.items()}
    ours, theirs = read(OURS, **given), read(THEIRS, **given)
    assert ours.schema == theirs.schema
    assert rows(ours) == rows(theirs)


@pytest.mark.parametrize(
    "options", [{"minPartitions": "5"}, {"maxRecordsPerPartition": "9"}, {"minPartitions": "2"}], ids=str
)
def test_a_batch_is_cut_into_the_same_tasks(read: Read, orders: str, options: dict[str, str]) -> None:
    """Offsets are given: Spark's connector does not cut what it resolves later, in the tasks."""
    ends = [
        json.dumps({orders: offsets}) for offsets in ({"0": 0, "1": 1, "2": 0}, {"0": 40, "1": 12, "2": 0})
    ]
    given = options | {"subscribe": orders, "startingOffsets": ends[0], "endingOffsets": ends[1]}
    assert tasks(read(OURS, **given)) == tasks(read(THEIRS, **given))


@contextmanager
def refusal() -> Iterator[list[str]]:
    """What Spark says, on one line."""
    said: list[str] = []
    with pytest.raises(Exception) as caught:
        yield said
    said.append(re.sub(r"\s+", " ", str(caught.value)))


def words(text: str) -> str:
    """The error's own words, without Java's class and stack, and with the partitions' set as we write it."""
    text = re.sub(r"^(\[[A-Z_.]+\] )?(Query \[.*?\] terminated with exception: )?(java\S+: )?", "", text)
    text = re.split(r" SQLSTATE| at (?:org|java|scala)\.|;? ?JVM stacktrace", text)[0]
    return text.removeprefix("requirement failed: ").removeprefix("assertion failed: ").strip()


BAD_IN_BOTH = [
    {"subscribe": "a", "assign": '{"a":[0]}'},
    {"subscribe": ","},
    {"assign": "a"},
    {"assign": "{a"},
    {"subscribePattern": " "},
    {"subscribe": "a", "minPartitions": "0"},
    {"subscribe": "a", "maxRecordsPerPartition": "0"},
    {"subscribe": "a", "startingOffsets": "{bad"},
    {"subscribe": "a", "startingOffsetsByTimestamp": "{bad"},
    {"subscribe": "a", "startingTimestamp": "bad"},
    {"subscribe": "a", "kafka.key.deserializer": "x"},
    {"subscribe": "a", "kafka.value.deserializer": "x"},
    {"subscribe": "a", "kafka.enable.auto.commit": "true"},
    {"subscribe": "a", "kafka.interceptor.classes": "x"},
    {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
]
BAD_IN_A_STREAM = [
    *BAD_IN_BOTH[:3],
    {"subscribe": "a", "endingOffsets": "latest"},
    {"subscribe": "a", "endingOffsetsByTimestamp": '{"a":{"0":1}}'},
]
BAD_IN_A_BATCH = [
    {"subscribe": "a", "startingOffsets": "latest"},
    {"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'},
    {"subscribe": "a", "endingOffsets": "earliest"},
    {"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'},
    {"subscribe": "a", "startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":3}}'},
    {"subscribe": "a", "startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"1":3}}'},
]


@pytest.mark.parametrize("options", BAD_IN_A_STREAM, ids=str)
def test_a_stream_is_refused_in_the_same_words(stream: Read, options: dict[str, str], tmp_path: Path) -> None:
    with refusal() as theirs:
        batches(stream(THEIRS, **options), tmp_path / "theirs")
    with refusal() as ours:
        batches(stream(OURS, **options), tmp_path / "ours")
    assert words(theirs[0]) in ours[0]


@pytest.mark.parametrize("options", BAD_IN_BOTH + BAD_IN_A_BATCH, ids=str)
def test_a_batch_is_refused_in_the_same_words(read: Read, options: dict[str, str]) -> None:
    with refusal() as theirs:
        read(THEIRS, **options).collect()
    with refusal() as ours:
        read(OURS, **options).collect()
    assert words(theirs[0]) in ours[0]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{{"{topic}":{{"0":1}}}}'},
        {"startingOffsetsByTimestamp": '{{"{topic}":{{"0":1}}}}'},
        {"startingTimestamp": "99000000000000"},
    ],
    ids=str,
)
def test_a_start_that_does_not_fit_the_topic_is_refused_in_the_same_words(
    stream: Read, orders: str, options: dict[str, str], tmp_path: Path
) -> None:
    given = {key: value.format(topic=orders) for key, value in options.items()} | {"subscribe": orders}
    given["fetchOffset.retryIntervalMs"] = "1"
    with refusal() as theirs:
        batches(stream(THEIRS, **given), tmp_path / "theirs")
    with refusal() as ours:
        batches(stream(OURS, **given), tmp_path / "ours")
    assert re.sub(r"-\d and", "-0 and", words(theirs[0])) in ours[0], "any of the partitions is named"


def test_a_limited_stream_has_the_same_batches(stream: Read, orders: str, tmp_path: Path) -> None:
    options = {"subscribe": orders, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    ours = batches(stream(OURS, **options), tmp_path / "ours")
    theirs = batches(stream(THEIRS, **options), tmp_path / "theirs")
    assert ours == theirs
    assert len(ours) > 2


def test_a_checkpoint_moves_from_one_to_the_other_and_back(
    stream: Read, topics: Topics, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topics.create(topic_names("moving"), 2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    read: list[Any] = []
    for turn, form in enumerate((THEIRS, OURS, THEIRS, OURS)):
        if turn == 2:
            topics.add_partitions(topic, 3)
        topics.fill(topic, range(5), 0)
        topics.fill(topic, range(3), 2 if turn >= 2 else 1)
        read += [row for _, found in batches(stream(form, **options), tmp_path) for row in found]
    expected = [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(6)]
    assert sorted(read) == expected + [(2, offset) for offset in range(6)]


def test_aborted_transactions_are_seen_the_same(
    read: Read, topics: Topics, topic_names: Callable[[str], str]
) -> None:
    topic = topics.create(topic_names("transactions"))
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{turn}-{number}")
        producer.flush(60)
        producer.abort_transaction(60) if turn % 2 else producer.commit_transaction(60)
    for level, count in (("read_committed", 30), ("read_uncommitted", 60)):
        options = {"subscribe": topic, "kafka.isolation.level": level}
        ours = rows(read(OURS, **options))
        assert ours == rows(read(THEIRS, **options))
        assert len(ours) == count
