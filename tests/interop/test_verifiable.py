"""Kafka's VerifiableProducer and VerifiableConsumer run clean: all is acknowledged, read once and in order, and exit
code 0 follows; also where the broker is killed with -9 and comes back while they run.

`--target kafka` runs the same on Apache Kafka. (TransactionalMessageCopier is in test_transactions.)
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.clients.confluent import Confluent
from moldau.bench.apache_kafka import Distribution, KafkaServer
from moldau.bench.raw import RawConnection
from moldau.bench.server import MoldauServer, Server
from stored import read_partition

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-java")]

PARTITIONS = 3
TIMEOUT_S = 120
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "verifiable-consumer"
PROTOCOLS = ["classic", "consumer"]
NewTopic = Callable[..., str]
Told = dict[str, Any]


class Running:
    """A verifiable tool that was started, and the events that it has printed so far, each a line of JSON."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._printed, self._errors = folder / "stdout.txt", folder / "stderr.txt"
        folder.mkdir()
        with self._printed.open("wb") as printed, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=errors)

    def events(self, *names: str) -> list[Told]:
        lines = self._printed.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [event for event in told if event["name"] in names]

    def wait_for(self, name: str, count: int) -> None:
        """Until so many of these were printed, or the tool has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.events(name)) < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{name}: {len(self.events(name))} of {count}"
            time.sleep(0.1)

    def ended_clean(self) -> None:
        assert self.process.wait(TIMEOUT_S) == 0, self._errors.read_text()
        assert self.events("shutdown_complete")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)


class Tools:
    """Starts the two tools against one broker; whatever still runs at the end of the block is killed."""

    def __init__(self, kafka: Distribution, address: str, folder: Path) -> None:
        self._kafka = kafka
        self._address = address
        self._folder = folder
        self._started: list[Running] = []

    def produce(self, topic: str, count: int, *more: str) -> Running:
        """acks=-1 and, as the tool wants it, no retries, unless its configuration says otherwise."""
        return self._start(PRODUCER, "--topic", topic, "--max-messages", str(count), "--acks", "-1", *more)

    def consume(self, topic: str, group: str, count: int, protocol: str) -> Running:
        read = ("--topic", topic, "--group-id", group, "--max-messages", str(count))
        how = ("--reset-policy", "earliest", "--verbose", "--group-protocol", protocol)
        return self._start(CONSUMER, *read, *how)

    def _start(self, tool: str, *arguments: str) -> Running:
        command = self._kafka.command(tool, "--bootstrap-server", self._address, *arguments)
        running = Running(command, self._folder / f"tool-{len(self._started)}")
        self._started.append(running)
        return running

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._started:
            running.end()


@pytest.fixture
def tools(requires_kafka: Distribution, target: str, tmp_path: Path) -> Iterator[Tools]:
    with Tools(requires_kafka, target, tmp_path) as tools:
        yield tools


@pytest.fixture
def server(request: pytest.FixtureRequest, requires_kafka: Distribution, tmp_path: Path) -> Iterator[Server]:
    """A broker of the target's kind to be killed."""
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test kills its broker: it takes no address as --target.")
    kind = MoldauServer if wanted == "moldau" else KafkaServer
    with kind(tmp_path / "broker") as server:
        yield server


def acknowledged(producer: Running, count: int) -> dict[tuple[int, int], str]:
    """What the producer was told about each message, after a clean run in which none failed."""
    producer.ended_clean()
    (summary,) = producer.events("tool_data")
    assert (summary["sent"], summary["acked"]) == (count, count)
    assert producer.events("producer_send_error") == []
    successes = producer.events("producer_send_success")
    places = {(event["partition"], event["offset"]): event["value"] for event in successes}
    assert sorted(map(int, places.values())) == list(range(count))
    return places


def read_by_partition(consumer: Running) -> dict[int, list[tuple[int, str]]]:
    """Offset and value of each message in the order of reading."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for event in consumer.events("record_data"):
        found[event["partition"]].append((event["offset"], event["value"]))
    return found


def committed(consumer: Running) -> dict[int, int]:
    """The last successful commit of each partition."""
    commits = [commit for commit in consumer.events("offsets_committed") if commit["success"]]
    return {place["partition"]: place["offset"] for commit in commits for place in commit["offsets"]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_message_is_acknowledged_and_read_once_in_order(
    tools: Tools, new_topic: NewTopic, protocol: str
) -> None:
    topic, count = new_topic(f"verifiable-{protocol}", partitions=PARTITIONS), 3000
    consumer = tools.consume(topic, topic, count, protocol)
    places = acknowledged(tools.produce(topic, count, "--throughput", "-1"), count)
    consumer.ended_clean()
    found = read_by_partition(consumer)
    assert {(p, offset): value for p, read in found.items() for offset, value in read} == places
    for read in found.values():
        assert [offset for offset, _ in read] == list(range(len(read)))
        values = [int(value) for _, value in read]
        assert values == sorted(values)
    assert all(commit["success"] for commit in consumer.events("offsets_committed"))
    assert committed(consumer) == {partition: len(read) for partition, read in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_or_out_of_order_while_the_broker_is_killed(
    requires_kafka: Distribution, server: Server, tmp_path: Path, protocol: str
) -> None:
    """An idempotent producer tries again until all is stored, once; the consumer is in one group throughout."""
    topic, count = "survivors", 4000
    Confluent(server.bootstrap_servers).create(topic, partitions=PARTITIONS)
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=2147483647\n")
    with Tools(requires_kafka, server.bootstrap_servers, tmp_path) as tools:
        consumer = tools.consume(topic, "readers", count, protocol)
        producer = tools.produce(topic, count, "--throughput", "400", "--command-config", str(config))
        for seen in (count // 5, count // 2):
            producer.wait_for("producer_send_success", seen)
            consumer.wait_for("record_data", seen // 2)
            server.kill()
            server.start()
        places = acknowledged(producer, count)
        consumer.ended_clean()
    check_stored(server, topic, places)
    check_read(read_by_partition(consumer), places, committed(consumer), count)


def check_stored(server: Server, topic: str, places: dict[tuple[int, int], str]) -> None:
    """The log holds what was acknowledged, where it was acknowledged, and nothing else; each partition in order."""
    stored: dict[tuple[int, int], str] = {}
    with RawConnection(server.bootstrap_servers) as connection:
        for partition in range(PARTITIONS):
            records = read_partition(connection, topic, partition, 0)
            values = [int(record.value or b"") for record in records]
            assert values == sorted(values), f"partition {partition} is out of order"
            stored |= {(partition, record.offset): str(v) for record, v in zip(records, values, strict=True)}
    assert stored == places


def check_read(
    found: dict[int, list[tuple[int, str]]],
    places: dict[tuple[int, int], str],
    commits: dict[int, int],
    count: int,
) -> None:
    """Each partition from its start and without a gap. What was read but not committed may come again, no more."""
    again = 0
    for partition, read in found.items():
        offsets = [offset for offset, _ in read]
        assert offsets[0] == 0
        assert all(later <= before + 1 for before, later in itertools.pairwise(offsets)), partition
        assert [places[partition, offset] for offset in offsets] == [value for _, value in read]
        assert commits[partition] == max(offsets) + 1
        again += len(offsets) - len(set(offsets))
    assert sum(commits.values()) == count - again
