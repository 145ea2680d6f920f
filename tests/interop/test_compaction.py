"""The same batches, sent to Apache Kafka and to Moldau and compacted by each, leave the same records and batches.

Segments are closed by time (`segment.ms` counts in the records' timestamps), so both brokers close them at the same
offsets, and `cleaner-offset-checkpoint`, which both keep, tells when each has compacted all that is closed. What
stays depends on when it is compacted, so both are held back (by `min.cleanable.dirty.ratio`) while batches are sent.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from bench.raw import RawConnection, produce_request
from bench.server import MoldauServer, Server
from cluster.support import create_topic, wait_until
from interop.clients.confluent import Confluent
from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import BadCheckpoint, read_offsets
from moldau.records.batch import DELETE_HORIZON, read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, read_records
from stored import read_batches

from .test_log_files import dump

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SETTINGS = {"log.cleaner.backoff.ms": 100, "log.cleaner.threads": 1}
SEGMENT_MS = 10_000
NEVER, AT_ONCE = "1.0", "0.0"
"""No log is dirtier than all of it."""
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": str(SEGMENT_MS),
    "min_cleanable_dirty_ratio": NEVER,
    "delete_retention_ms": "0",
}
COMPACTION_TIMEOUT_S = 60
INVALID_RECORD = 87


class Brokers(NamedTuple):
    kafka: Server
    moldau: Server


@pytest.fixture(scope="module")
def brokers(requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("brokers")
    with (
        KafkaServer(folder / "kafka", SETTINGS) as kafka,
        MoldauServer(folder / "moldau", SETTINGS) as moldau,
    ):
        yield Brokers(kafka, moldau)


class Stream:
    """A seeded stream of batches: all codecs, headers, tombstones, with and without producers."""

    def __init__(self, seed: int, now_ms: int, keys: int) -> None:
        self._random = random.Random(seed)
        self._keys = [b"key-%d" % n * (1 + n % 4) for n in range(keys)]
        self._sequences: dict[int, int] = {}
        self.now_ms = now_ms

    def batch(self) -> bytes:
        rng = self._random
        self.now_ms += rng.randrange(1500)
        records = [self._record(number) for number in range(1 + rng.randrange(6))]
        options: dict[str, Any] = {"codec": rng.choice(list(Codec))}
        if rng.random() < 0.5:
            producer_id = 1000 + rng.randrange(3)
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + len(records)
            options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        return build_batch(records, **options)

    def _record(self, number: int) -> Record:
        rng = self._random
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200))
        headers = (("h", rng.randbytes(3)), ("null", None)) if rng.random() < 0.3 else ()
        return Record(number, self.now_ms - rng.randrange(50), rng.choice(self._keys), value, headers)


def send(server: Server, topic: str, batches: list[bytes]) -> None:
    with RawConnection(server.bootstrap_servers) as connection:
        for batch in batches:
            answer = connection.ask(produce_request(topic, 0, batch, acks=-1))
            assert answer.responses[0].partition_responses[0].error_code == 0, answer


def data_folder(server: Server) -> Path:
    found = [path.parent for path in server.data.rglob("meta.properties")]
    assert len(found) == 1
    return found[0]


def active_base(server: Server, topic: str) -> int:
    return max(int(path.stem) for path in (data_folder(server) / f"{topic}-0").glob("*.log"))


def cleaned_to(server: Server, topic: str) -> int:
    try:
        content = (data_folder(server) / "cleaner-offset-checkpoint").read_bytes()
        return read_offsets(content).get(TopicPartition(topic, 0), 0)
    except (FileNotFoundError, BadCheckpoint):
        return 0


def wait_compacted(server: Server, topic: str) -> int:
    """Let all that is closed be compacted; up to which offset that is."""
    client = Confluent(server.bootstrap_servers)
    client.alter_configs(topic, put={"min.cleanable.dirty.ratio": AT_ONCE})
    end = active_base(server, topic)
    wait_until(
        lambda: cleaned_to(server, topic) == end,
        timeout_s=COMPACTION_TIMEOUT_S,
        what=f"{server.name} to compact {topic} up to {end}",
    )
    client.alter_configs(topic, put={"min.cleanable.dirty.ratio": NEVER})
    return end


def seen_in(server: Server, topic: str) -> list[object]:
    """Batches and records, without what depends on the moment of the compaction and on how deltas are written."""
    with RawConnection(server.bootstrap_servers) as connection:
        batches = read_batches(connection, topic)
    return [
        (
            header.base_offset,
            header.last_offset,
            header.count,
            header.attributes,
            header.max_timestamp,
            (header.producer_id, header.producer_epoch, header.base_sequence),
            read_records(batch),
        )
        for batch in batches
        for header in [read_header(batch)]
    ]


@pytest.mark.parametrize(
    ("seed", "keys", "policy"), [(1, 8, "compact"), (2, 60, "compact"), (3, 25, "compact,delete")]
)
def test_both_brokers_keep_the_same_batches_and_records(
    brokers: Brokers, seed: int, keys: int, policy: str
) -> None:
    topic = f"compaction-{seed}"
    for server in brokers:
        create_topic(server.bootstrap_servers, topic, **(COMPACTED | {"cleanup_policy": policy}))
    stream = Stream(seed, int(time.time() * 1000) - 3_600_000, keys)
    for round_ in range(4):
        batches = [stream.batch() for _ in range(60)]
        for server in brokers:
            send(server, topic, batches)
        ends = [wait_compacted(server, topic) for server in brokers]
        assert ends[0] == ends[1]
        kafka, moldau = (seen_in(server, topic) for server in brokers)
        assert moldau == kafka, f"after round {round_}"
        assert sum(len(batch[-1]) for batch in moldau) < (round_ + 1) * 60 * 3.5  # type: ignore[index]


def test_tombstones_get_their_horizon_and_go_in_the_next_round(brokers: Brokers) -> None:
    topic = "tombstones"
    for server in brokers:
        create_topic(server.bootstrap_servers, topic, **COMPACTED)
    start_ms = int(time.time() * 1000) - 3_600_000

    def batch(round_: int, *pairs: tuple[bytes, bytes | None]) -> bytes:
        timestamp = start_ms + round_ * 2 * SEGMENT_MS
        return build_batch([Record(i, timestamp, key, value) for i, (key, value) in enumerate(pairs)])

    rounds = [
        [batch(0, (b"a", b"1"), (b"b", b"1")), batch(1, (b"a", None), (b"c", b"1")), batch(2, (b"d", b"1"))],
        [batch(3, (b"e", b"1")), batch(4, (b"f", b"1"))],
    ]
    horizons: dict[str, list[bool]] = {}
    for number, batches in enumerate(rounds):
        for server in brokers:
            send(server, topic, batches)
            wait_compacted(server, topic)
            with RawConnection(server.bootstrap_servers) as connection:
                headers = [read_header(one) for one in read_batches(connection, topic)]
            horizons[server.name] = [bool(header.attributes & DELETE_HORIZON) for header in headers]
        kafka, moldau = (seen_in(server, topic) for server in brokers)
        assert moldau == kafka
        assert horizons["Moldau"] == horizons["Apache Kafka"]
        keys = [record.key for one in moldau for record in one[-1]]  # type: ignore[index]
        assert (b"a" in keys) == (number == 0)
    assert any(horizons["Moldau"])


def test_both_refuse_a_record_without_a_key_and_say_which(brokers: Brokers) -> None:
    now_ms = int(time.time() * 1000)
    records = [Record(0, now_ms, b"k", b"v"), Record(1, now_ms, None, b"v"), Record(2, now_ms, None, None)]
    answers = []
    for server in brokers:
        create_topic(server.bootstrap_servers, "keyless", **COMPACTED)
        with RawConnection(server.bootstrap_servers) as connection:
            answer = connection.ask(produce_request("keyless", 0, build_batch(records), acks=-1))
        (partition,) = answer.responses[0].partition_responses
        errors = [(error.batch_index, error.batch_index_error_message) for error in partition.record_errors]
        answers.append((partition.error_code, partition.error_message, errors))
    assert answers[0] == answers[1]
    assert answers[0][0] == INVALID_RECORD
    assert [index for index, _ in answers[0][2]] == [1, 2]


def test_kafkas_dump_tool_reads_compacted_segments_without_complaint(
    brokers: Brokers, requires_kafka: Distribution
) -> None:
    topic = "dumped"
    server = brokers.moldau
    create_topic(server.bootstrap_servers, topic, **COMPACTED)
    stream = Stream(9, int(time.time() * 1000) - 3_600_000, 15)
    send(server, topic, [stream.batch() for _ in range(200)])
    wait_compacted(server, topic)
    folder = data_folder(server) / f"{topic}-0"

    def files(suffix: str) -> str:
        return ",".join(sorted(str(path) for path in folder.glob(f"*{suffix}")))

    output = dump(requires_kafka, "--deep-iteration", "--print-data-log", "--files", files(".log"))
    offsets = [int(number) for number in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == [record.offset for one in seen_in(server, topic) for record in one[-1]]  # type: ignore[index]
    assert "deleteHorizonMs: OptionalLong[" in output
    closed = sorted(folder.glob("*.index"))[:-1]
    for check in ("--index-sanity-check", "--verify-index-only"):
        indexes = [str(path) for path in closed] + [str(path.with_suffix(".timeindex")) for path in closed]
        dump(requires_kafka, check, "--files", ",".join(indexes))
