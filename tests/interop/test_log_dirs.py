"""Kafka's own tools move replicas between the data folders of a broker (KIP-113)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.broker_on_disks import BrokerOnDisks
from interop.clients import Message
from interop.clients.confluent import Confluent
from interop.clients.java import JavaTools

REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC = "moved"
COUNT = 2000


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def broker(tmp_path: Path, folders: tuple[Path, Path], requires_kafka: None) -> Iterator[BrokerOnDisks]:
    broker = BrokerOnDisks(tmp_path / "broker", *folders)
    broker.start()
    yield broker
    broker.kill()


def logs(java: JavaTools) -> dict[str, list[tuple[str, int, bool]]]:
    """Partition, lag and whether it is on its way there, by folder, as kafka-log-dirs tells it."""
    printed = java.run("log-dirs", "--describe", "--topic-list", TOPIC).stdout.strip().splitlines()[-1]
    (broker,) = json.loads(printed)["brokers"]
    assert all(folder["error"] is None for folder in broker["logDirs"])
    return {
        folder["logDir"]: sorted(
            (p["partition"], p["offsetLag"], p["isFuture"]) for p in folder["partitions"]
        )
        for folder in broker["logDirs"]
    }


def plan(path: Path, *wanted: tuple[int, Path]) -> tuple[str, str]:
    partitions: list[dict[str, Any]] = [
        {"topic": TOPIC, "partition": index, "replicas": [1], "log_dirs": [str(folder)]}
        for index, folder in wanted
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def test_reassign_partitions_moves_replicas_to_the_folders_of_its_plan(
    broker: BrokerOnDisks, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    java, client = JavaTools(broker.bootstrap_servers), Confluent(broker.bootstrap_servers)
    client.create(TOPIC, partitions=2)
    messages = [Message(b"%d" % number) for number in range(COUNT)]
    client.produce(TOPIC, messages, partition=0)
    client.produce(TOPIC, messages, partition=1)
    target, other = folders
    given = plan(tmp_path / "plan.json", (0, target), (1, target))
    started = java.run(REASSIGNMENT, *given, "--execute").stdout
    assert (
        f"Successfully started moving log directory to {target} for replica {TOPIC}-1 with broker 1"
        in started
    )
    verified = java.run(REASSIGNMENT, *given, "--verify").stdout
    for index in range(2):
        assert f"Reassignment of replica {TOPIC}-{index}-1 completed successfully." in verified
    assert logs(java) == {
        str(target): [(f"{TOPIC}-0", 0, False), (f"{TOPIC}-1", 0, False)],
        str(other): [],
    }
    received = client.consume(TOPIC, offset=0, count=COUNT, partition=1)
    assert [message.value for message in received] == [message.value for message in messages]


def test_a_move_that_waits_is_a_future_replica_for_kafkas_tools(
    broker: BrokerOnDisks, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    java, client = JavaTools(broker.bootstrap_servers), Confluent(broker.bootstrap_servers)
    client.create(TOPIC, partitions=1)
    client.produce(TOPIC, [Message(b"x" * 1000) for _ in range(COUNT)])
    source = next(folder for folder, found in logs(java).items() if found)
    target = next(folder for folder in folders if str(folder) != source)
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    java.run(
        "configs", "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", f"{rate}=1000"
    )
    given = plan(tmp_path / "plan.json", (0, target))
    java.run(REASSIGNMENT, *given, "--execute")
    (moving,) = logs(java)[str(target)]
    assert moving[2] and moving[1] > 0
    assert "is still in progress" in java.run(REASSIGNMENT, *given, "--verify", "--preserve-throttles").stdout
    java.run("configs", "--entity-type", "brokers", "--entity-name", "1", "--alter", "--delete-config", rate)
    for _ in range(20):
        if not logs(java)[source]:
            break
    assert logs(java)[str(target)] == [(f"{TOPIC}-0", 0, False)]
