"""Exactly once: a consume-transform-produce worker and the broker are killed with -9 at random points, again and again.

Every message of the source topic is in the target exactly once for readers of committed messages, in order, and the
group's offsets are those of what was copied. The broker's topics have flush.messages=1 (a killed process does not lose
its page cache; lost writes are the simulation's part).
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.server import Server
from cluster.support import create_topic, wait_until

COPIER = Path(__file__).parent / "copier.py"
MESSAGES = 3_000
PARTITIONS = 2
ROUNDS = 14
USUAL_SEED = 20_261_116
GROUP, ID = "copiers", "copier"


class Worker:
    """The copier as a process, begun anew whenever it ends."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        if self._process is None or self._process.poll() is not None:
            seed = str(self._chance.getrandbits(32))
            words = [sys.executable, str(COPIER), self._bootstrap, "source", "copy", GROUP, ID, seed]
            self._process = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def worker(bootstrap: str, chance: random.Random) -> Iterator[Worker]:
    made = Worker(bootstrap, chance)
    try:
        yield made
    finally:
        made.kill()


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(MESSAGES):
        producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def committed_offsets(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition("source", index) for index in range(PARTITIONS)]
        return [place.offset for place in consumer.committed(places, 10)]
    finally:
        consumer.close()


def committed_values(bootstrap: str, partition: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("copy", partition, 0)])
    values: list[int] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "the end of the partition does not come"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append(int(message.value() or b""))
    finally:
        consumer.close()


@pytest.mark.slow
def test_every_message_is_copied_once_whoever_is_killed(
    new_server: Callable[..., Server], seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    server = new_server().start()
    bootstrap = server.bootstrap_servers
    for topic in ("source", "copy"):
        create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap)
    with worker(bootstrap, chance) as copier:
        for _ in range(ROUNDS):
            copier.ensure()
            time.sleep(chance.uniform(0.3, 1.5))
            if chance.random() < 0.5:
                copier.kill()
            if chance.random() < 0.6:
                server.kill()
                server.start()

        def is_done() -> bool:
            copier.ensure()
            return committed_offsets(bootstrap) == [MESSAGES // PARTITIONS] * PARTITIONS

        wait_until(is_done, timeout_s=90, what="all messages to be copied")
    for partition in range(PARTITIONS):
        assert committed_values(bootstrap, partition) == list(range(partition, MESSAGES, PARTITIONS))
