"""Logs move between the data folders of a broker that is at work, and is killed in between: nothing is lost or doubled.

Producers with acks=all, transactions and compaction go on all the time; the files of a log that has moved hold what a
reader gets.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.raw import RawConnection, nested, request_class
from cluster.broker_on_disks import BrokerOnDisks
from cluster.support import create_topic, wait_until
from cluster.up import COMMAND, TIMEOUT_S

PLAIN, COMMITTED, COMPACTED = "plain", "committed", "compacted"
MOVED = (PLAIN, COMMITTED, COMPACTED, "__transaction_state")
ALTER_REPLICA_LOG_DIRS = 34
ROUNDS = 3
KEYS = 50


class Load:
    """What was acknowledged, by topic."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.acknowledged: dict[str, list[bytes]] = {PLAIN: [], COMMITTED: [], COMPACTED: []}
        self.aborted: set[bytes] = set()
        self.refused: list[Any] = []
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._transact)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def _producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 2} | settings)

    def _write(self) -> None:
        producer = self._producer(**{"enable.idempotence": True})

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.refused.append(error)
            else:
                self.acknowledged[message.topic()].append(message.value())

        number = 0
        while not self._ends.is_set():
            for topic in (PLAIN, COMPACTED):
                key = b"%d" % (number % KEYS)
                producer.produce(topic, b"%d " % number + b"x" * 200, key, 0, on_delivery=on_delivery)
            number += 1
            producer.poll(0.001)
        assert producer.flush(100) == 0

    def _transact(self) -> None:
        producer = self._producer(**{"transactional.id": "mover"})
        producer.init_transactions(100)
        number = 0
        while not self._ends.is_set():
            producer.begin_transaction()
            values = [b"%d-%d" % (number, part) for part in range(5)]
            for value in values:
                producer.produce(COMMITTED, value, partition=0)
            if number % 3 == 0:
                producer.abort_transaction(100)
                self.aborted.update(values)
            else:
                producer.commit_transaction(100)
                self.acknowledged[COMMITTED] += values
            number += 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerOnDisks]:
    broker = BrokerOnDisks(
        tmp_path / "broker",
        tmp_path / "a",
        tmp_path / "b",
        **{
            "log.flush.interval.messages": 9223372036854775807,
            "log.cleaner.backoff.ms": 200,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "offsets.topic.replication.factor": 1,
        },
    )
    broker.start()
    yield broker
    broker.kill()


def move(broker: BrokerOnDisks, path: Path) -> None:
    request = request_class(ALTER_REPLICA_LOG_DIRS, 2)
    folder = nested(request, "dirs")
    topic = nested(folder, "topics")
    topics = tuple(topic(name=name, partitions=(0,)) for name in MOVED)
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.ask(request(dirs=(folder(path=str(path), topics=topics),)))
    assert all(not one.error_code for topic in answer.results for one in topic.partitions), answer


def lies_in(path: Path) -> bool:
    return all((path / f"{topic}-0").is_dir() for topic in MOVED)


def read(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap} | settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        found.append((message.key(), message.value()))
    raise AssertionError(f"the end of {topic} was not reached")


@pytest.mark.slow
def test_logs_move_there_and_back_under_load_with_kills_in_between(
    broker: BrokerOnDisks, tmp_path: Path
) -> None:
    folders = (tmp_path / "b", tmp_path / "a")
    for topic in (PLAIN, COMMITTED):
        create_topic(broker.bootstrap_servers, topic, **{"segment.bytes": "1048576"})
    compacted = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(broker.bootstrap_servers, COMPACTED, **compacted)
    load = Load(broker.bootstrap_servers)
    load.start()
    try:
        wait_until(lambda: len(load.acknowledged[COMMITTED]) > 20, 60)
        for number in range(ROUNDS):
            target = folders[number % 2]
            move(broker, target)
            if number:  # at some point of the move
                time.sleep(0.01 * number)
                broker.kill()
                broker.start()
            wait_until(lambda path=target: lies_in(path), 150, f"the logs to move in round {number}")  # type: ignore[misc]
            counts = {topic: len(values) for topic, values in load.acknowledged.items()}
            wait_until(lambda c=counts: all(len(load.acknowledged[t]) > c[t] + 5 for t in c), 150)  # type: ignore[misc]
    finally:
        load.end()
    assert not load.refused
    plain = [value for _, value in read(broker.bootstrap_servers, PLAIN)]
    assert plain == load.acknowledged[PLAIN]
    committed = [value for _, value in read(broker.bootstrap_servers, COMMITTED)]
    assert committed == load.acknowledged[COMMITTED]
    last = dict(read(broker.bootstrap_servers, COMPACTED))
    expected = {b"%d" % (int(value.split()[0]) % KEYS): value for value in load.acknowledged[COMPACTED]}
    assert last == expected


def moldau(broker: BrokerOnDisks, *arguments: str, code: int = 0) -> Any:
    done = subprocess.run(
        [*COMMAND, "cluster", *arguments, "--bootstrap", broker.bootstrap_servers, "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_a_person_moves_logs_and_gives_a_plan_with_folders(broker: BrokerOnDisks, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, PLAIN, 2)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")

    def places() -> dict[str, list[int]]:
        shown = moldau(broker, "move-logs", "--broker", "1")
        return {folder["path"]: sorted(log["partition"] for log in folder["logs"]) for folder in shown}

    before = places()
    assert sorted(map(len, before.values())) == [1, 1]
    to_b = ("move-logs", "--broker", "1", "--to", b, "--topic", PLAIN)
    (would,) = moldau(broker, *to_b, "--dry-run")
    assert (would["from"], would["to"]) == (a, b) and places() == before
    assert moldau(broker, *to_b) == {"status": "moved", "logs": 1, "failed": {}}
    assert places() == {a: [], b: [0, 1]}
    assert "no data folder of broker 1" in moldau(broker, "move-logs", "--broker", "1", "--to", "/no", code=4)
    plan = tmp_path / "plan.json"
    wanted = [{"topic": PLAIN, "partition": n, "replicas": [1], "log_dirs": [a]} for n in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    moldau(broker, "reassign", "--file", str(plan))
    assert places() == {a: [0, 1], b: []}
