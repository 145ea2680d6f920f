"""Kafka's VerifiableProducer and VerifiableConsumer as processes, and what they have told, in lines of JSON."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.apache_kafka import Distribution

TIMEOUT_S = 120
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "verifiable-consumer"
PROTOCOLS = ["classic", "consumer"]
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

    def stop(self) -> None:
        """As a person does who has seen enough: its shut-down hooks run, which say so."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT_S) in (0, 128 + signal.SIGTERM), self.logged()
        assert self.events("shutdown_complete"), self.logged()

    def logged(self) -> str:
        """Warnings and errors."""
        return self._errors.read_text()

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
