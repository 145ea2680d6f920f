"""What happens to a query's topics and processes between two of its batches, and in one: nothing is lost or read twice
unseen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from spark.source_topics import TIMEOUT_S, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = list[tuple[int, list[tuple[int, int]]]]
Name = Callable[[str], str]


class Query:
    """A stream of one topic that is run until it has caught up, again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, checkpoint: Path) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self.checkpoint = checkpoint

    def run(self, topic: str, **options: str) -> Batches:
        """The partitions and offsets of each batch."""
        given = {
            "subscribe": topic,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
        } | options
        given["kafka.bootstrap.servers"] = self._bootstrap_servers
        frame = self._spark.readStream.format("moldau").options(**given).load()
        batches: Batches = []

        def keep(batch: DataFrame, number: int) -> None:
            batches.append(
                (number, sorted(tuple(row) for row in batch.select("partition", "offset").collect()))
            )

        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(120)
        return batches

    def forget_the_end_of(self, batch: int) -> None:
        """As if the driver had died before it could write that the batch was done."""
        commits = self.checkpoint / "commits"
        for name in (str(batch), f".{batch}.crc"):
            (commits / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def topics(target: str) -> Topics:
    return Topics(target)


@pytest.fixture
def query(spark: SparkSession, target: str, tmp_path: Path) -> Query:
    return Query(spark, target, tmp_path / "checkpoint")


def rows(partition: int, *offsets: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(*offsets)]


def test_a_driver_that_is_killed_in_its_first_batch_comes_back_to_where_latest_was(
    query: Query, topics: Topics, topic_names: Name, tmp_path: Path
) -> None:
    topic = topics.create(topic_names("killed"))
    topics.fill(topic, range(10))
    command = [sys.executable, str(Path(__file__).parent / "source_child.py")]
    child = subprocess.Popen(
        [*command, topics.bootstrap_servers, topic, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "batch 0\n"
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)
        child.stdout.close()  # type: ignore[union-attr]
    topics.fill(topic, range(50))
    assert query.run(topic, startingOffsets="latest") == [(0, []), (1, rows(0, 10, 60))]


def test_a_batch_that_runs_again_reads_the_same_although_the_topic_has_changed(
    query: Query, topics: Topics, topic_names: Name
) -> None:
    topic = topics.create(topic_names("again"), 2)
    topics.fill(topic, range(20), 0)
    topics.fill(topic, range(10), 1)
    options = {"maxOffsetsPerTrigger": "18", "minPartitions": "4"}
    first = query.run(topic, **options)
    assert first == [(0, rows(0, 12) + rows(1, 6)), (1, rows(0, 12, 20) + rows(1, 6, 10))]
    topics.add_partitions(topic, 3)
    topics.fill(topic, range(5), 2)
    topics.fill(topic, range(5), 0)
    query.forget_the_end_of(1)
    assert query.run(topic, **options) == [first[1], (2, rows(0, 20, 25) + rows(2, 5))]


def test_a_first_batch_that_runs_again_begins_where_it_began(
    query: Query, topics: Topics, topic_names: Name
) -> None:
    topic = topics.create(topic_names("first"))
    topics.fill(topic, range(20))
    first = query.run(topic)
    topics.trim(topic, 0, 5)
    query.forget_the_end_of(0)
    with pytest.raises(Exception, match="failOnDataLoss"):
        query.run(topic)
    assert query.run(topic, failOnDataLoss="false") == [(0, rows(0, 5, 20))]
    assert first == [(0, rows(0, 20))]


def test_records_that_retention_took_are_missed_or_skipped(
    query: Query, topics: Topics, topic_names: Name
) -> None:
    topic = topics.create(topic_names("retention"))
    topics.fill(topic, range(10))
    query.run(topic)
    topics.fill(topic, range(20))
    topics.trim(topic, 0, 15)
    with pytest.raises(Exception, match="failOnDataLoss"):
        query.run(topic)
    assert query.run(topic, failOnDataLoss="false") == [(1, rows(0, 15, 30))]


def test_a_recreated_topic_is_noticed_although_it_has_grown_past_the_checkpoint(
    query: Query, topics: Topics, topic_names: Name
) -> None:
    topic = topics.create(topic_names("recreated"))
    topics.fill(topic, range(10))
    query.run(topic)
    topics.delete(topic)
    topics.create(topic)
    topics.fill(topic, range(30))
    with pytest.raises(Exception, match=f"Topic {topic} was deleted and created anew"):
        query.run(topic)
    assert query.run(topic, failOnDataLoss="false") == [(1, rows(0, 30))]
    assert query.run(topic) == []


def test_a_topic_that_is_gone_is_said_to_be(query: Query, topics: Topics, topic_names: Name) -> None:
    topic = topics.create(topic_names("gone"))
    topics.fill(topic, range(3))
    query.run(topic)
    topics.delete(topic)
    with pytest.raises(Exception, match="This server does not host this topic-partition"):
        query.run(topic)


def test_committed_readers_end_before_an_open_transaction_and_pass_aborted_ones(
    query: Query, topics: Topics, topic_names: Name
) -> None:
    topic = topics.create(topic_names("open"))
    config = {"bootstrap.servers": topics.bootstrap_servers}
    producer = Producer({**config, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for keeps in (True, False):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, str(number))
        producer.flush(TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S) if keeps else producer.abort_transaction(TIMEOUT_S)
    committed = {"kafka.isolation.level": "read_committed"}
    assert query.run(topic, **committed) == [(0, rows(0, 5))]
    producer.begin_transaction()
    producer.produce(topic, "later")
    producer.flush(TIMEOUT_S)
    assert query.run(topic, **committed) == [], "the markers behind the last record are no news"
    producer.commit_transaction(TIMEOUT_S)
    assert query.run(topic, **committed) == [(1, [(0, 12)])]


def test_progress_is_committed_to_the_group_and_a_new_query_can_start_there(
    query: Query, topics: Topics, topic_names: Name, tmp_path: Path
) -> None:
    topic, group = topics.create(topic_names("progress"), 2), topic_names("group")
    topics.fill(topic, range(7), 0)
    topics.fill(topic, range(4), 1)
    query.run(topic, progressGroup=group, maxOffsetsPerTrigger="3")
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": group})
    partitions = [ClientPartition(topic, number) for number in range(2)]
    assert [each.offset for each in consumer.committed(partitions, TIMEOUT_S)] == [7, 4]
    consumer.close()
    topics.fill(topic, range(2), 1)
    describe = [str(Path(sys.executable).parent / "moldau"), "group", "describe", group]
    shown = subprocess.run(
        [*describe, "--bootstrap", topics.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert [line.split()[:5] for line in shown.splitlines() if topic in line] == [
        [topic, "0", "7", "7", "0"],
        [topic, "1", "4", "6", "2"],
    ]
    query.checkpoint = tmp_path / "another"
    assert query.run(topic, progressGroup=group, startingOffsets="group") == [(0, rows(1, 4, 6))]
