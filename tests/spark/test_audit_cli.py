"""The audit as a person uses it, by the command line alone: a new project, checked, run until it has caught up or for
ever, and shown; with a loss and a doubling on purpose, and with a producer that is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import write_deltalake

from bench.server import MoldauServer
from moldau.audit import AuditedProducer
from moldau.audit.tally import window_of
from spark.source_topics import Topics

DOCS = Path(__file__).parents[2] / "docs" / "pipelines.md"
DEADLINE_S = 240.0
MINUTE_MS = 60_000
BEGIN_MS = window_of(int(time.time() * 1000) - 7_200_000, MINUTE_MS)
MOLDAU = (sys.executable, "-c", "from moldau.cli import main; main()")
PRODUCER = """\
import sys, time
from moldau.audit import AuditedProducer
servers, count, ends = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "ends"
producer = AuditedProducer({"bootstrap.servers": servers}, name="shop", window_s=5, interval_s=1)
for number in range(count):
    producer.produce("orders", f"{time.time_ns()}-{number}")
    producer.poll(0)
assert producer.flush(60) == 0
if ends:
    sys.exit()  # without close: the interpreter's end publishes
assert producer.audit.publish(60)
for number in range(count):
    producer.produce("orders", f"{time.time_ns()}-{number}")
producer.audit.publish = lambda *_args, **_more: True  # it is killed before the next totals
assert producer.flush(60) == 0
print("stored", flush=True)
time.sleep(600)
"""


@pytest.fixture
def topics(requires_spark: None, tmp_path: Path) -> Iterator[Topics]:
    with MoldauServer(tmp_path / "broker") as server:
        yield Topics(server.bootstrap_servers)


def moldau(*arguments: str, code: int = 0) -> str:
    command = [*MOLDAU, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def produce(topics: Topics, minute: int, partition: int, numbers: Sequence[int]) -> None:
    """By the helper, one life of a producer."""
    with AuditedProducer({"bootstrap.servers": topics.bootstrap_servers}, name="shop") as producer:
        for number in numbers:
            at_ms = BEGIN_MS + minute * MINUTE_MS + number
            producer.produce("orders", b"%d" % number, partition=partition, timestamp=at_ms)


def keep(topics: Topics, lake: Path, offsets: dict[int, int], leave_out: int = 0) -> None:
    """What the topic has from the offsets on, in the table: all but the last ones of partition 1."""
    consumer = Consumer(
        {"bootstrap.servers": topics.bootstrap_servers, "group.id": "keep", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("orders", *place) for place in offsets.items()])
    kept: dict[int, list[tuple[int, int, int]]] = {partition: [] for partition in offsets}
    at_end: set[int] = set()
    while len(at_end) < len(offsets):
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "no answer"
        if message.error() is not None:
            at_end.add(message.partition())
        else:
            place = message.partition(), message.offset(), message.timestamp()[1] * 1000
            kept[message.partition()].append(place)
    consumer.close()
    kept[1] = kept[1][: len(kept[1]) - leave_out]
    partitions, positions, times = zip(*(row for rows in kept.values() for row in rows), strict=True)
    columns = [
        pa.array(partitions, pa.int32()),
        pa.array(positions, pa.int64()),
        pa.array(times, pa.timestamp("us", "UTC")),
    ]
    write_deltalake(str(lake), pa.table(columns, names=["partition", "offset", "timestamp"]), mode="append")


def documented() -> str:
    """The table in the section on the audit."""
    section = DOCS.read_text().partition("## Audit")[2]
    (table,) = re.findall(r"^```\n(TOPIC .*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(table)


def without_dates(shown: str) -> str:
    """Times as minutes since the first one."""
    found = sorted(set(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)))
    for number, moment in enumerate(found):
        shown = shown.replace(moment, f"minute {number}".ljust(len(moment)))
    return shown


def test_the_table_of_the_docs_is_what_is_shown_of_a_loss_and_a_doubling(
    topics: Topics, tmp_path: Path
) -> None:
    folder, lake = str(tmp_path / "watch"), tmp_path / "lake" / "orders"
    topics.create("orders", 3)
    topics.create("payments")
    for partition in range(3):
        produce(topics, 0, partition, range(partition * 100, partition * 100 + 20))
    keep(topics, lake, {0: 0, 1: 0, 2: 0})
    servers = ("--bootstrap", topics.bootstrap_servers)
    moldau("pipeline", "new", folder, "--audit", f"orders={lake}", "--audit", "payments", *servers)
    moldau("pipeline", "check", folder)
    moldau("pipeline", "run", folder, "--once")
    assert "1 window: 1 right." in moldau("audit", folder)

    produce(topics, 1, 0, range(200, 230))
    topics.trim("orders", 0, 25)  # five of the second minute are gone before anybody has read them
    produce(topics, 2, 0, range(400, 410))
    topics.fill("orders", [401], 0, timestamp_ms=BEGIN_MS + 2 * MINUTE_MS + 401)  # sent once more
    produce(topics, 2, 2, [450])
    topics.trim("orders", 2, 21)  # and one is gone: the counts agree
    produce(topics, 3, 1, range(500, 520))
    keep(topics, lake, {0: 25, 1: 20, 2: 21}, leave_out=8)
    moldau("pipeline", "run", folder, "--once")
    shown = moldau("audit", folder, code=1)
    assert without_dates(shown) == without_dates(documented())

    problems = json.loads(moldau("audit", folder, "--problems", "--json", code=1))["windows"]
    assert [
        ((one["begin_ms"] - BEGIN_MS) // MINUTE_MS, one["lost_in_topic"], one["doubled_in_topic"])
        for one in problems
    ] == [(1, 5, 0), (2, 1, 1)]


def test_windows_close_while_it_runs_and_a_killed_producers_are_unsure(
    topics: Topics, tmp_path: Path
) -> None:
    folder = tmp_path / "watch"
    topics.create("orders", 2)
    topics.create("moldau_audit", cleanup_policy="compact")
    moldau("pipeline", "new", str(folder), "--audit", "orders", "--bootstrap", topics.bootstrap_servers)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text().replace("window: 1 minute", "window: 5 seconds")
    spec.write_text(text.replace("lateness: 5 minutes", "lateness: 3 seconds"))
    produced(topics, 100, "ends")
    stored_and_killed(topics, 50)
    with (folder / "run.log").open("w") as out:
        run = subprocess.Popen(
            [*MOLDAU, "pipeline", "run", str(folder)], stdout=out, stderr=out, start_new_session=True
        )
    try:
        windows = wait_for_windows(folder, run)
    finally:
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(DEADLINE_S) == 0, (folder / "run.log").read_text()
    assert sum(window["produced"] for window in windows) == 150
    assert sum(window["in_topic"] for window in windows) == 200
    assert sum(window["doubled"] for window in windows) == 50
    assert {window["verdict"] for window in windows if window["doubled"]} == {"unsure"}
    assert all("the producer shop on" in window["notes"][0] for window in windows if window["doubled"])
    moldau("audit", str(folder))
    assert_watching_shows_them(folder)


def produced(topics: Topics, count: int, how: str) -> None:
    command = [sys.executable, "-c", PRODUCER, topics.bootstrap_servers, str(count), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr


def stored_and_killed(topics: Topics, count: int) -> None:
    command = [sys.executable, "-c", PRODUCER, topics.bootstrap_servers, str(count), "is killed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "stored\n"
        producer.kill()


def wait_for_windows(folder: Path, run: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Until all are closed, and the killed producer has been silent for long enough to be known as killed."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert run.poll() is None, (folder / "run.log").read_text()
        command = [*MOLDAU, "audit", str(folder), "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        windows: list[dict[str, Any]] = json.loads(shown.stdout)["windows"] if shown.stdout else []
        counted = sum(window["in_topic"] for window in windows)
        if counted == 200 and {window["verdict"] for window in windows} <= {"right", "unsure"}:
            return windows
        time.sleep(1)
    raise AssertionError((folder / "run.log").read_text())


def assert_watching_shows_them(folder: Path) -> None:
    command = [*MOLDAU, "audit", str(folder), "--watch", "--problems", "--every", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        line = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(DEADLINE_S) == 0
    assert "unsure, doubled " in line
    assert " orders " in line
