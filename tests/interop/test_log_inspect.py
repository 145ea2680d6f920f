"""`moldau log` looks into what Apache Kafka's broker wrote: while it runs, after a crash, after a clean stop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import Distribution, KafkaServer

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC = "made-by-kafka"
COMPACTED = "compacted-by-kafka"
# Compaction at once, and partitions enough to see the folder of a broker that does everything.
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "log.cleaner.backoff.ms": 200,
}
COMPACTED_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
}
COMPACTION_TIMEOUT_S = 60


def look(*arguments: object) -> Any:
    command = [sys.executable, "-c", "from moldau.cli import main; main()", "log", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done


def verify(folder: Path) -> list[dict[str, Any]]:
    done = look("verify", folder, "--records", "--json")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert done.returncode == any(finding["severity"] == "damage" for finding in findings)
    return findings


def of(findings: list[dict[str, Any]], *severities: str) -> list[dict[str, Any]]:
    return [finding for finding in findings if finding["severity"] in severities]


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, 2, 1, config={"segment.bytes": "1048576"}),
        NewTopic(COMPACTED, 1, 1, config=COMPACTED_CONFIG),
    ]
    for done in admin.create_topics(topics).values():
        done.result()


def produce(bootstrap: str) -> None:
    """All codecs, committed and aborted transactions."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"transactional-{codec}",
                "compression.type": codec,
                "linger.ms": 20,
            }
        )
        producer.init_transactions()
        for transaction in range(4):
            producer.begin_transaction()
            for i in range(300):
                value = f"{codec} {transaction} {i} ".encode() * 60
                producer.produce(TOPIC, value, key=b"%d" % i, partition=number % 2)
            producer.flush()
            if transaction % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def overwrite(bootstrap: str) -> None:
    """Keys that are written again and again."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for i in range(3000):
        producer.produce(COMPACTED, b"x" * 1000, key=b"%d" % (i % 7))
        if i % 100 == 0:
            producer.flush()
    producer.flush()


def commit_offsets(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "group", "enable.auto.commit": False})
    for offset in range(1, 20):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def wait_for_compaction(bootstrap: str, data: Path) -> None:
    """Until a batch has lost records, or batches are gone."""
    producer = Producer({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + COMPACTION_TIMEOUT_S
    while True:
        dumped = look("dump", data / f"{COMPACTED}-0", "--json").stdout.splitlines()
        batches = [line for line in map(json.loads, dumped) if line["type"] == "batch"]
        if sum(batch["count"] for batch in batches) < 1500:
            return
        assert time.monotonic() < deadline, "Kafka compacts nothing"
        producer.produce(COMPACTED, b"on", key=b"on")  # lets the active segment roll
        producer.flush()
        time.sleep(0.5)


def test_folders_of_kafka_are_sound_running_crashed_and_stopped(
    requires_kafka: Distribution, tmp_path: Path
) -> None:
    server = KafkaServer(tmp_path, SETTINGS)
    with server:
        create(server.bootstrap_servers)
        produce(server.bootstrap_servers)
        commit_offsets(server.bootstrap_servers)
        overwrite(server.bootstrap_servers)
        wait_for_compaction(server.bootstrap_servers, server.data)
        found = verify(server.data)
        assert {finding["kind"] for finding in found} == {"running", "skipped"}, found

        server.kill()
        found = verify(server.data)
        assert of(found, "damage") == []
        assert "index-zeroes" in {finding["kind"] for finding in of(found, "repair")}
        server.start()
        produce(server.bootstrap_servers)
    found = verify(server.data)
    assert of(found, "damage", "repair") == []
    assert [finding["kind"] for finding in found] == ["skipped"], found

    dumped = [
        json.loads(line)
        for line in look("dump", server.data, "-t", TOPIC, "-d", "-i", "--json").stdout.splitlines()
    ]
    assert {line.get("control") for line in dumped if line["type"] == "record"} == {None, "commit", "abort"}
    assert sum(line["type"] == "txnindex" for line in dumped) == 20
    assert sum(line["type"] == "record" and "control" not in line for line in dumped) == 2 * 5 * 4 * 300
    sizes = json.loads(look("du", server.data, "--json").stdout)
    assert {size["topic"] for size in sizes["partitions"]} >= {TOPIC, COMPACTED, "__consumer_offsets"}

    log = max((server.data / f"{TOPIC}-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    (damage,) = of(verify(server.data), "damage")
    assert damage["file"] == str(log) and damage["position"] <= len(content) // 2
