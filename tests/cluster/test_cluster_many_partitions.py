"""Thousands of partitions over a few brokers: made, led by others after a kill, in sync again, and nothing is lost.

That no decision or change on so many of them holds a loop is a matter of slices, which the unit tests count
(`controller.slices`, `broker.replicas`, `log.manager`); how long it all takes `make bench` measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from bench.raw import metadata_request
from cluster.several import PATIENCE_S, Cluster, NewCluster, clusters
from cluster.support import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPICS = [f"many-{number}" for number in range(4)]
PARTITIONS = 500
"""Of each topic: 2,000 in all."""
Record = tuple[str, int, bytes]


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield make


def write_to_all(cluster: Cluster, value: bytes) -> set[Record]:
    """A record to each partition with acks=all; all of them, once they are acknowledged."""
    written: set[Record] = set()
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.topic()}-{message.partition()}: {error}")
        else:
            written.add((message.topic() or "", message.partition() or 0, value))

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 50,
            "log_level": 0,
        }
    )
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            producer.poll(0)
    left = producer.flush(PATIENCE_S)
    assert not left and not refused, f"{left} are not acknowledged; {refused[:3]}\n{cluster.words()}"
    return written


def read_all(cluster: Cluster, count: int) -> list[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t in TOPICS for p in range(PARTITIONS)])
    found: list[Record] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline_s:
        for message in consumer.consume(1000, timeout=1.0):
            if message.error() is None:
                found.append((message.topic() or "", message.partition() or 0, message.value() or b""))
    consumer.close()
    return found


def leads_something(cluster: Cluster, broker_id: int) -> bool:
    """Whether it leads a partition, or nobody does, as some running broker sees it; or one does not answer."""
    try:
        return any(
            partition.leader_id in (broker_id, -1)
            for running in cluster.running
            for topic in cluster.ask(metadata_request(), running).topics
            for partition in topic.partitions
        )
    except OSError:
        return True


def test_thousands_of_partitions_survive_the_death_of_a_broker(new_cluster: NewCluster) -> None:
    """Of the one that is the controller: another has to take over the office before it can move the leaders."""
    cluster = new_cluster(3)
    for topic in TOPICS:
        cluster.create(topic, PARTITIONS, 3, min_insync_replicas=2)
    written = write_to_all(cluster, b"before")
    victim = cluster.controller()
    cluster.kill(victim)
    wait_until(lambda: not leads_something(cluster, victim), PATIENCE_S, "other leaders of all partitions")
    written |= write_to_all(cluster, b"meanwhile")
    cluster.start(victim)
    cluster.wait_in_sync(TOPICS)
    assert len(written) == 2 * len(TOPICS) * PARTITIONS
    found = read_all(cluster, len(written))
    assert len(found) == len(written) and set(found) == written
