"""Kafka's TransactionalMessageCopier on three brokers, of which one after the other is killed with -9: exactly once.

A copier reads its partition of the source, and writes what it has read, and its offsets, in transactions, some of which
it aborts by chance. It is Kafka's measure of exactly once in its own system tests. `--target kafka` runs the same on
three nodes of Apache Kafka; COPIES=20000 is a longer run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import Distribution
from bench.clusters import Cluster, KafkaCluster, MoldauCluster
from cluster.support import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("interop-cluster-copier")]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIES = int(os.environ.get("COPIES", "3000"))
"""Of each copier."""
COPIERS = 2
KILLS_MIN = 2
"""While a copier is at work."""
TRANSACTION_SIZE = 10
USUAL_SEED = 20_261_118
PATIENCE_S = 240.0
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}


class Copier:
    """One copier, for one partition; it prints its progress in lines of JSON."""

    def __init__(self, kafka: Distribution, address: str, partition: int, folder: Path) -> None:
        name = f"copier-{partition}"
        self._printed, self._errors = folder / f"{name}.out", folder / f"{name}.err"
        words = ["--broker-list", address, "--input-topic", "source", "--output-topic", "copy"]
        words += ["--input-partition", str(partition), "--transactional-id", name, "--consumer-group", name]
        words += ["--transaction-size", str(TRANSACTION_SIZE), "--max-messages", str(COPIES)]
        words += ["--enable-random-aborts", "--transaction-timeout", "30000"]
        with self._printed.open("wb") as printed, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(kafka.command(COPIER, *words), stdout=printed, stderr=errors)

    def told(self) -> list[dict[str, object]]:
        lines = self._printed.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def consumed(self) -> int:
        return max((int(str(line.get("consumed", 0))) for line in self.told()), default=0)

    def ended_well(self) -> None:
        assert self.process.wait(PATIENCE_S) == 0, self._errors.read_text()[-4000:]
        assert self.told()[-1].get("stage") == "ShutdownComplete"


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, requires_kafka: Distribution, tmp_path: Path
) -> Iterator[Cluster]:
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test kills brokers: it takes no address as --target.")
    kind = MoldauCluster if wanted == "moldau" else KafkaCluster
    with kind(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


def fill(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    new = [NewTopic(topic, COPIERS, 3) for topic in ("source", "copy")]
    for created in admin.create_topics(new).values():
        created.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(COPIES):
        for partition in range(COPIERS):
            producer.produce("source", b"%d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def wait_whole(cluster: Cluster) -> None:
    def is_whole() -> bool:
        answers = [cluster.describe(node) for node in cluster.nodes.values()]
        parts = [part for answer in answers for topic in answer.topics for part in topic.partitions]
        return all(part.leader_id >= 0 and len(part.isr_nodes) == 3 for part in parts)

    wait_until(is_whole, PATIENCE_S, "all replicas in sync")


def read_committed(address: str, partition: int) -> list[int]:
    """Up to the end of what is committed, which must be the end of the log: no transaction is left open."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("copy", partition, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "the end of the partition does not come"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append(int(message.value() or b""))
    finally:
        consumer.close()


def test_every_message_is_copied_once_while_brokers_are_killed(
    cluster: Cluster, requires_kafka: Distribution, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    fill(cluster)
    address = cluster.bootstrap_servers
    copiers = [Copier(requires_kafka, address, partition, tmp_path) for partition in range(COPIERS)]
    kills = 0
    try:
        wait_until(lambda: all(copier.consumed() for copier in copiers), PATIENCE_S, "the copiers to begin")
        while any(copier.process.poll() is None for copier in copiers):
            time.sleep(chance.uniform(0.0, 0.5))
            node = cluster.nodes[chance.choice(list(cluster.nodes))]
            node.kill()
            kills += 1
            node.launch()
            cluster.wait_joined(node)
            wait_whole(cluster)
        for copier in copiers:
            copier.ended_well()
    finally:
        for copier in copiers:
            copier.process.kill()
            copier.process.wait()
    print(f"{kills} kills")
    assert kills >= KILLS_MIN, "too few messages for this machine"
    for partition in range(COPIERS):
        assert read_committed(address, partition) == list(range(COPIES))
