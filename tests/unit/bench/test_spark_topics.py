"""What the benchmarks on Spark are measured with: topics of known records, CPU by process, ages of results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from bench import librdkafka
from bench.measure import WorkNotDone
from bench.server import MoldauServer
from bench.spark import latency, results
from bench.spark.topics import EVENTS_PER_BATCH, events, filled, texts
from bench.spark.world import Cpu, between, look_at_jvm
from bench.topics import fresh_topic

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It reads /proc.")

BURN = "import time\nwhile time.process_time() < {}: pass\nprint(flush=True)\ninput()"
PARENT = """
import subprocess, sys
def start(seconds, module):
    return subprocess.Popen([sys.executable, "-c", {burn!r}.format(seconds), module], stdin=-1, stdout=-1)
children = [start(0.6, "pyspark.worker"), start(0.2, "pyspark.sql.worker.plan_data_source_read")]
for child in children:
    child.stdout.readline()
print(flush=True)
input()
for child in children:
    child.communicate(b"end")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauServer]:
    with MoldauServer(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize(("codec", "partitions"), [("none", 1), ("zstd", 3)])
def test_a_topic_holds_the_rows_and_the_bytes_that_it_says(
    server: MoldauServer, codec: str, partitions: int
) -> None:
    with filled(server, [[b"one", b"three"], [b"seven"]], 10, codec, partitions) as topic:
        assert topic.rows >= 10
        assert topic.rows % (3 * partitions) == 0
        assert topic.value_bytes == 13 * topic.rows // 3
        client = librdkafka.consumer(server)
        try:
            ends = [
                client.get_watermark_offsets(TopicPartition(topic.name, number), 30)[1]
                for number in range(partitions)
            ]
            librdkafka.consume_all(client, topic.name, partitions, topic.rows)
        finally:
            client.close()
    assert ends == [topic.rows // partitions] * partitions


def test_values_have_the_size_that_is_asked_for() -> None:
    for size in (100, 1000):
        (batch,) = texts(size)
        assert {len(value) for value in batch} == {size}
        assert size * len(batch) > 14_000


def test_events_are_json_of_ten_minutes_the_same_in_every_run() -> None:
    batches = events()
    found = [json.loads(event) for batch in batches for event in batch]
    assert batches == events()
    assert {len(batch) for batch in batches} == {EVENTS_PER_BATCH}
    assert len({event["at"][:16] for event in found}) == 10
    assert found[0].keys() == {"at", "user", "page", "referrer", "agent", "duration_ms"}
    assert 150 < sum(len(event) for batch in batches for event in batch) / len(found) < 250


def test_cpu_is_told_apart_by_what_a_process_is_for() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(burn=BURN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        taken = between({}, look_at_jvm(process.pid))
    finally:
        process.communicate(b"end", timeout=60)
    assert taken.workers >= 0.6
    assert 0.2 <= taken.driver < 0.6
    assert taken.jvm < taken.workers
    assert taken.broker == 0


def test_a_worker_that_ended_takes_nothing_from_the_others() -> None:
    before = {1: ("jvm", 1.0), 2: ("workers", 5.0), 3: ("broker", 1.0)}
    after = {1: ("jvm", 5.0), 3: ("broker", 2.0), 4: ("workers", 3.0), 5: ("driver", 2.0)}
    taken = between(before, after)
    assert taken == Cpu(jvm=4, workers=3, driver=2, broker=1)
    assert taken.over(2) == Cpu(2, 1.5, 1, 0.5)
    assert taken.total == 10


def test_what_this_process_has_started_is_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where nobody takes the CPU of a child that ended, as Spark's daemon does with its workers."""
    monkeypatch.setattr(results, "LOOK_S", 0.01)
    busy_s = [100.0]
    monkeypatch.setattr(results, "_busy_s", lambda: busy_s[0])
    parent = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {BURN.format(1)!r}], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()
"""
    with results.Others() as others:
        subprocess.run([sys.executable, "-c", parent], check=True, timeout=60, capture_output=True)
        busy_s[0] += 1.0  # no more than the child has used
    assert others.share == 0
    with results.Others() as others:
        busy_s[0] += 1e6
    assert others.share == 1


def test_results_are_as_old_as_the_way_took(server: MoldauServer) -> None:
    with (
        fresh_topic(server) as topic,
        latency.probing(server.bootstrap_servers, topic, topic) as probe,
    ):
        probe.wait_until_it_runs()
        assert 0 < min(probe.one() for _ in range(5)) < 0.5  # the probe itself waits for nothing
        ages = probe.paced(rate=100, duration_s=0.5)
    assert len(ages) == 50
    assert min(ages) > 0


def test_a_result_that_never_comes_is_no_reading(
    server: MoldauServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "RESULT_TIMEOUT_S", 1.0)
    with (
        fresh_topic(server) as given,
        fresh_topic(server) as result,
        latency.probing(server.bootstrap_servers, given, result) as probe,
    ):
        with pytest.raises(WorkNotDone, match="no result of record 0"):
            probe.one()
        with pytest.raises(WorkNotDone, match="0 results of 10"):
            probe.paced(rate=100, duration_s=0.1)
