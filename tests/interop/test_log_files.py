"""Kafka's own DumpLogSegments reads what the log writes, and the log opens what Kafka's broker wrote.

The dump tool exits with 0 on a bad log, so its output is searched for every complaint that it knows.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import Distribution, KafkaServer
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log.checkpoints import read_properties
from moldau.log.host import LogHost, Owner
from moldau.log.index import read_waiting
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.scan import checked_batches
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, real_runtime

pytestmark = pytest.mark.interop

PARTITION = TopicPartition("dumped", 0)
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Mismatches|Non-consecutive|Index is corrupt|Exception|out of order|Found timestamp"
    r"|offset:.*isValid: false",
    re.IGNORECASE,
)
SETTINGS = {"internal.segment.bytes": "4000", "index.interval.bytes": "500"}


def run(work: Callable[[Runtime], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        runtime = real_runtime()
        try:
            return await work(runtime)
        finally:
            close_runtime(runtime)

    return asyncio.run(whole())


def manager(runtime: Runtime, folder: Path, **identity: Any) -> LogManager:
    settings = topic_config(BrokerConfig.parse({}), SETTINGS)
    owner = Owner(**{"cluster_id": "cluster", "node_id": 1, "process_id": 1, **identity})
    return LogManager(runtime, [str(folder)], owner, LogHost(lambda topic: settings))


def fill(log: Log) -> list[Record]:
    """Every codec, headers, null and empty keys and values, idempotent producers, several epochs and segments."""
    now_ms = int(time.time() * 1000)
    written: list[Record] = []
    for round_ in range(40):
        codec = Codec(round_ % 5)
        rows = [
            Record(0, now_ms + round_, None, b"value %d" % round_),
            Record(1, now_ms - round_, b"key", None, (("h", b"1"), ("empty", b""), ("null", None))),
            Record(2, now_ms, b"", b"x" * (200 * round_ % 3000)),
        ]
        producer = round_ % 4
        data = build_batch(
            rows,
            codec=codec,
            producer_id=producer - 1,
            producer_epoch=0 if producer else -1,
            base_sequence=round_ // 4 * 3 if producer else -1,
        )
        result = log.append(
            memoryview(bytearray(data)), 0, len(data), leader_epoch=round_ // 15, now_ms=now_ms
        )
        assert result.error == 0, result
        written += [
            Record(result.base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(rows)
        ]
    return written


def read_all(log: Log) -> list[Record]:
    found = []
    for base in log.segments.bases:
        segment = log.segments.at(base)
        for _, data in checked_batches(segment.log, 0, segment.size, read_waiting):
            found += read_records(data)
    return found


def dump(kafka: Distribution, *arguments: str) -> str:
    output = kafka.run("dump-log", *arguments).stdout
    complaint = COMPLAINTS.search(output)
    assert complaint is None, output[max(0, complaint.start() - 300) : complaint.end() + 300]
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A cleanly closed log that was also crashed, recovered and appended to in between."""
    data = tmp_path_factory.mktemp("data")

    async def write(runtime: Runtime) -> list[Record]:
        logs = manager(runtime, data)
        await logs.open()
        log = logs.create(PARTITION, uuid.UUID(int=5))
        written = fill(log)
        await log.flush()
        logs.release()  # as if killed: nothing is closed
        logs = manager(runtime, data)
        await logs.open()
        log = logs.logs[PARTITION]
        assert log.next_offset == len(written)
        data_ = build_batch([Record(0, written[-1].timestamp, b"k", b"after the crash")])
        log.append(memoryview(bytearray(data_)), 0, len(data_), leader_epoch=7, now_ms=written[-1].timestamp)
        await logs.close()
        return [*written, Record(len(written), written[-1].timestamp, b"k", b"after the crash")]

    return data, run(write)


def files(folder: Path, suffix: str) -> str:
    found = sorted(str(path) for path in (folder / str(PARTITION)).glob(f"*{suffix}"))
    assert found
    return ",".join(found)


def test_kafka_dumps_every_record_that_was_written(
    requires_kafka: Distribution, folder: tuple[Path, list[Record]]
) -> None:
    data, written = folder
    arguments = ("--deep-iteration", "--print-data-log")
    output = dump(requires_kafka, *arguments, "--files", files(data, ".log"))
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == [record.offset for record in written]
    assert output.count("Log starting offset") == len(files(data, ".log").split(",")) > 2
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in output
    timestamps = [int(n) for n in re.findall(r"^\| offset: \d+ CreateTime: (\d+)", output, re.MULTILINE)]
    assert timestamps == [record.timestamp for record in written]
    assert "payload: after the crash" in output


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_the_indexes_sane(
    requires_kafka: Distribution, folder: tuple[Path, list[Record]], check: str
) -> None:
    data, _ = folder
    indexes = f"{files(data, '.index')},{files(data, '.timeindex')}"
    output = dump(requires_kafka, check, "--files", indexes)
    if check == "--index-sanity-check":
        assert output.count("passed sanity check") == len(indexes.split(","))


def test_kafka_reads_the_producer_snapshots(
    requires_kafka: Distribution, folder: tuple[Path, list[Record]]
) -> None:
    data, _ = folder
    output = dump(requires_kafka, "--files", files(data, ".snapshot"))
    assert "producerId: 2 producerEpoch: 0" in output
    assert "lastSequence: 29" in output


@pytest.mark.slow
def test_the_log_opens_what_kafkas_broker_wrote(requires_kafka: Distribution, tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("made-by-kafka", 1, 1, config={"segment.bytes": "1048576"})])[
            "made-by-kafka"
        ].result()
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer(
                {
                    "bootstrap.servers": server.bootstrap_servers,
                    "enable.idempotence": True,
                    "compression.type": codec,
                    "linger.ms": 20,
                }
            )
            for i in range(400):
                producer.produce(
                    "made-by-kafka", f"{codec} {i} ".encode() * 100, key=b"k", headers=[("h", b"1")]
                )
            producer.flush()
    (meta,) = tmp_path.rglob("meta.properties")
    properties = read_properties(meta.read_bytes())

    async def read(runtime: Runtime) -> tuple[list[Record], int, list[int]]:
        identity = {"cluster_id": properties["cluster.id"], "node_id": int(properties["node.id"])}
        logs = manager(runtime, meta.parent, **identity)
        await logs.open()
        log = logs.logs[TopicPartition("made-by-kafka", 0)]
        assert log.topic_id is not None
        try:
            return read_all(log), log.next_offset, [p.last_sequence for p in log.producers()]
        finally:
            logs.release()

    records, next_offset, sequences = run(read)
    assert [record.offset for record in records] == list(range(2000))
    assert records[1999].value == b"zstd 399 " * 100
    assert next_offset == 2000
    assert sequences == [399] * 5
