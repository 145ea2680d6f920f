"""Compaction in a running broker: what its readers see, its metrics, stops and kills in the middle of it."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from bench.raw import RawConnection, fetch_request, produce_request
from bench.server import Server
from cluster.support import create_topic, wait_until
from interop.clients.confluent import Confluent
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.real.free_ports import free_port
from stored import split_batches

USUAL_SEED = 20_261_116
KILLS = 8
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "internal_segment_bytes": "20000",
}
Values = dict[bytes | None, bytes | None]


@pytest.fixture
def server(request: pytest.FixtureRequest, new_server: Callable[..., Server]) -> Iterator[Server]:
    if request.config.getoption("--target") != "moldau":
        pytest.skip("This looks into Moldau's own metrics and files.")
    port = free_port()
    settings = {"log_cleaner_backoff_ms": 50, "moldau_http_port": port}
    server = new_server(**settings)
    server.http_port = port  # type: ignore[attr-defined]
    yield server.start()


def metric(server: Any, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def fill(server: Server, topic: str, count: int, keys: int, first: int = 0, **options: Any) -> Values:
    """Messages over some keys, in batches of ten; the last value of each."""
    last: Values = {}
    now_ms = int(time.time() * 1000)
    with RawConnection(server.bootstrap_servers) as connection:
        for start in range(first, first + count, 10):
            records = [
                Record(i, now_ms, b"%d" % ((start + i) % keys), b"%d " % (start + i) + b"x" * 80)
                for i in range(10)
            ]
            if "producer_id" in options:
                options |= {"producer_epoch": 0, "base_sequence": start}
            answer = connection.ask(produce_request(topic, 0, build_batch(records, **options), acks=-1))
            assert answer.responses[0].partition_responses[0].error_code == 0
            last |= {record.key: record.value for record in records}
    return last


def wait_compacted(server: Server, compactions: int = 1) -> None:
    def done() -> bool:
        return (
            metric(server, "moldau_cleaner_compactions_total") >= compactions
            and metric(server, "moldau_cleaner_running") == 0
            and metric(server, "moldau_cleaner_dirtiest_ratio") == 0
        )

    wait_until(done, timeout_s=30, what="a compaction")


def read_to_the_end(server: Server, topic: str) -> list[Record]:
    """All records. An answer may be empty before the end, when segments were just swapped: a consumer asks again."""
    offset, found = 0, []
    deadline = time.monotonic() + 20
    with RawConnection(server.bootstrap_servers) as connection:
        while time.monotonic() < deadline:
            answer = connection.ask(fetch_request(topic, 0, offset, wait_ms=100))
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == 0
            for batch in split_batches(partition.records or b""):
                found += [record for record in read_records(batch) if record.offset >= offset]
                offset = read_header(batch).next_offset
            if offset == partition.high_watermark:
                return found
    raise AssertionError(f"no end from {offset} on")


def verify(server: Server) -> str:
    command = [server.command()[0], "log", "verify", "--records", str(server.data)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_with_confluent(bootstrap: str, topic: str, count: int) -> Values:
    found = Confluent(bootstrap).consume(topic, offset=0, count=count)
    return {message.key: message.value for message in found}


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> Values:
    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    place = PythonPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: list[Any] = []
    while len(found) < count:
        found += [record for some in consumer.poll(500).values() for record in some]
    consumer.close()
    return {record.key: record.value for record in found}


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> Values:
    async def read() -> Values:
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        async with consumer:
            place = AioPartition(topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            found: list[Any] = []
            while len(found) < count:
                some = await consumer.getmany(timeout_ms=500)
                found += [record for records in some.values() for record in records]
        return {record.key: record.value for record in found}

    return asyncio.run(read())


READERS = {
    "confluent-kafka": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}


def test_every_client_reads_a_compacted_topic_and_the_tools_find_it_sound(server: Server) -> None:
    bootstrap, topic = server.bootstrap_servers, "compacted"
    create_topic(bootstrap, topic, **COMPACTED)
    expected = fill(server, topic, 3000, keys=40, codec=Codec.LZ4, producer_id=77)
    wait_compacted(server)
    # What the metrics tell is of the cleaner's last look, which may have been before the last records came.
    wait_until(lambda: len(read_to_the_end(server, topic)) < 1000, timeout_s=30, what="most to be compacted")
    wait_compacted(server)
    left = read_to_the_end(server, topic)
    assert {record.key: record.value for record in left} == expected
    assert len(left) < 1000
    for name, read in READERS.items():
        assert read(bootstrap, topic, len(left)) == expected, name
    middle = left[len(left) // 2]
    assert Confluent(bootstrap).offset_at(topic, middle.timestamp) <= middle.offset
    assert metric(server, "moldau_cleaner_removed_records_total") == 3000 - len(left)
    assert metric(server, "moldau_cleaner_uncleanable_partitions") == 0
    assert server.stop()
    verify(server)
    server.start()
    assert read_to_the_end(server, topic) == left


def test_a_damaged_log_is_told_in_the_metrics_and_others_are_compacted(server: Server) -> None:
    bootstrap = server.bootstrap_servers
    for topic in ("damaged", "sound"):
        create_topic(bootstrap, topic, **(COMPACTED | {"min_cleanable_dirty_ratio": "1"}))
        fill(server, topic, 1000, keys=10)
    log = next(Path(server.data).rglob("damaged-0/00000000000000000000.log"))
    with log.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff\xff")
    for topic in ("damaged", "sound"):
        Confluent(bootstrap).alter_configs(topic, put={"min.cleanable.dirty.ratio": "0.01"})
    wait_until(lambda: metric(server, "moldau_cleaner_compactions_total") >= 1, what="the sound one")
    wait_until(lambda: metric(server, "moldau_cleaner_uncleanable_partitions") == 1, what="the damaged one")
    assert metric(server, "moldau_cleaner_failures_total") == 1
    assert "damaged-0 cannot be compacted" in server.output()


def test_a_stop_does_not_wait_for_a_compaction(server: Server) -> None:
    bootstrap, topic = server.bootstrap_servers, "slow"
    Confluent(bootstrap)
    create_topic(bootstrap, topic, **COMPACTED)
    server.stop()
    server.settings["log.cleaner.io.max.bytes.per.second"] = 20_000
    server.start()
    expected = fill(server, topic, 5000, keys=30)
    wait_until(lambda: metric(server, "moldau_cleaner_running") == 1, what="a compaction to begin")
    assert server.stop(timeout_s=20), server.output()
    assert not list(Path(server.data).rglob("*.swap"))
    del server.settings["log.cleaner.io.max.bytes.per.second"]
    server.start()
    wait_compacted(server)
    assert {record.key: record.value for record in read_to_the_end(server, topic)} == expected
    assert not list(Path(server.data).rglob("*.cleaned"))


@pytest.mark.slow
def test_kill_9_in_the_middle_of_compactions_loses_no_keys_last_value(
    server: Server, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    bootstrap, topic = server.bootstrap_servers, "killed"
    create_topic(bootstrap, topic, **COMPACTED, flush_messages="1")
    expected: Values = {}
    for round_ in range(KILLS):
        expected |= fill(server, topic, 1500, keys=200, first=round_ * 1500)
        try:
            server.wait(chance.uniform(0.0, 0.8))
        except subprocess.TimeoutExpired:
            server.kill()
        server.start()
        left = read_to_the_end(server, topic)
        assert {record.key: record.value for record in left} == expected
        assert [record.offset for record in left] == sorted({record.offset for record in left})
    expected |= fill(server, topic, 1000, keys=200, first=KILLS * 1500)
    wait_compacted(server)
    assert {record.key: record.value for record in read_to_the_end(server, topic)} == expected
    assert server.stop()
    verify(server)
