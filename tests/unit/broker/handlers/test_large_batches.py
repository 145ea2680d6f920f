"""Batches that would hold the loop are looked at in threads, in order, and clients see nothing of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.raw import RawConnection, decode_answer, frame, produce_request
from moldau.base.limits import RECORD_ERRORS_MAX, RECORDS_INLINE_MAX, UNFOLDED_INLINE_BYTES_MAX
from moldau.records import record as record_module
from moldau.records import validate
from moldau.records.batch import read_header
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from moldau.records.record import Record, assemble, build_batch
from moldau.testing import Cluster

PLAIN, COMPACTED, STAMPED = "plain", "compacted", "stamped"
NONE, INVALID_RECORD, INVALID_TIMESTAMP = 0, 87, 32
MANY = 4 * RECORDS_INLINE_MAX
NOW_MS = int(time.time() * 1000)
DAY_MS = 24 * 3_600_000
THREADS = "moldau-io"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic(PLAIN, 1)
        running.create_topic(COMPACTED, 1, {"cleanup.policy": "compact"})
        running.create_topic(
            STAMPED, 1, {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
        )
        yield running


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """By which thread something was unfolded, and within which limit."""
    noted: list[tuple[str, int]] = []

    def watched(codec: Codec, data: Any, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Any:
        if codec is not Codec.NONE:
            noted.append((threading.current_thread().name, limit_bytes))
        return decompress(codec, data, limit_bytes)

    monkeypatch.setattr(record_module, "decompress", watched)
    yield noted


def bomb(count: int = 1, at_ms: int = NOW_MS) -> bytes:
    header = read_header(build_batch([Record(0, at_ms, b"k", b"v")], codec=Codec.ZSTD))
    header = header._replace(count=count, last_offset_delta=count - 1)
    return assemble(header, compress(Codec.ZSTD, bytes(20_000_000)))


def of_producer(sequence: int, count: int, codec: Codec = Codec.ZSTD, **of_record: Any) -> bytes:
    value = random.Random(sequence).randbytes(20)
    rows = [Record(i, of_record.get("at_ms", NOW_MS), b"%d" % i, value) for i in range(count)]
    return build_batch(rows, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)


def produced(connection: RawConnection, topic: str, data: bytes) -> Any:
    return connection.ask(produce_request(topic, 0, data)).responses[0].partition_responses[0]


def on_the_loop(unfolded: list[tuple[str, int]]) -> list[int]:
    return [limit for thread, limit in unfolded if not thread.startswith(THREADS)]


def test_what_must_be_walked_is_unfolded_in_threads(
    cluster: Cluster, unfolded: list[tuple[str, int]]
) -> None:
    with RawConnection(cluster.bootstrap_servers) as connection:
        assert produced(connection, COMPACTED, bomb()).error_code == INVALID_RECORD
        assert produced(connection, PLAIN, bomb(at_ms=NOW_MS + 30 * DAY_MS)).error_code == INVALID_RECORD
    assert {limit for thread, limit in unfolded if thread.startswith(THREADS)} >= {DECOMPRESSED_BYTES_MAX}
    assert all(limit == UNFOLDED_INLINE_BYTES_MAX for limit in on_the_loop(unfolded))


def test_what_need_not_be_is_taken_as_it_is(cluster: Cluster, unfolded: list[tuple[str, int]]) -> None:
    with RawConnection(cluster.bootstrap_servers) as connection:
        assert produced(connection, PLAIN, bomb()).base_offset == 0
        assert produced(connection, PLAIN, bomb(2**31 - 1)).error_code == INVALID_RECORD
        assert produced(connection, PLAIN, of_producer(0, MANY)).base_offset == 1
    assert all(limit == UNFOLDED_INLINE_BYTES_MAX for limit in on_the_loop(unfolded))
    assert len(on_the_loop(unfolded)) == len(unfolded)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_producers_batches_keep_their_order_and_retries_are_known(cluster: Cluster, codec: Codec) -> None:
    counts = [MANY, 1, 2, MANY, MANY, 1] * 3
    sequences = [sum(counts[:number]) for number in range(len(counts))]
    batches = [of_producer(sequence, n, codec) for sequence, n in zip(sequences, counts, strict=True)]
    with RawConnection(cluster.bootstrap_servers) as connection:
        requests = [produce_request(COMPACTED, 0, data) for data in batches]
        for number, request in enumerate([*requests, *requests[-3:]]):  # the last ones are sent again
            connection.send(frame(request, number))
        answers = [decode_answer(requests[0], connection.receive()) for _ in range(len(requests) + 3)]
    results = [answer.responses[0].partition_responses[0] for answer in answers]
    expected = [(NONE, sequence) for sequence in [*sequences, *sequences[-3:]]]
    assert [(int(r.error_code), r.base_offset) for r in results] == expected


def test_another_connection_does_not_wait_for_what_is_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, gate, looking = validate.walk, threading.Event(), threading.Event()

    def held(*args: Any, **options: Any) -> Any:
        if threading.current_thread().name.startswith(THREADS):
            looking.set()
            assert gate.wait(30)
        return really(*args, **options)

    monkeypatch.setattr(validate, "walk", held)
    with (
        RawConnection(cluster.bootstrap_servers) as slow,
        RawConnection(cluster.bootstrap_servers) as other,
    ):
        request = produce_request(COMPACTED, 0, of_producer(0, MANY))
        slow.send(frame(request))
        assert looking.wait(30)
        small = build_batch([Record(0, NOW_MS, b"k", b"v")])
        assert produced(other, COMPACTED, small).base_offset == 0
        gate.set()
        answer = decode_answer(request, slow.receive())
    assert answer.responses[0].partition_responses[0].base_offset == 1


def test_a_large_batch_gets_the_topics_time_and_codec(cluster: Cluster) -> None:
    with RawConnection(cluster.bootstrap_servers) as connection:
        for number, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.ZSTD)):
            answer = produced(connection, STAMPED, of_producer(number * MANY, MANY, codec))
            assert (int(answer.error_code), answer.base_offset) == (NONE, number * MANY)


def test_records_out_of_range_are_named_up_to_a_bound(cluster: Cluster) -> None:
    with RawConnection(cluster.bootstrap_servers) as connection:
        answer = produced(connection, PLAIN, of_producer(0, MANY, at_ms=NOW_MS + 30 * DAY_MS))
    assert answer.error_code == INVALID_TIMESTAMP
    assert len(answer.record_errors) == RECORD_ERRORS_MAX
