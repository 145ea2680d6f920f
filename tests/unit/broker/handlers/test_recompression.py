"""A topic's own `compression.type`: batches get it in a thread, and the order of requests stays. L7."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bench.raw import RawConnection, decode_answer, fetch_request, frame, produce_request
from moldau.log import log as log_module
from moldau.records import validate
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, iterate_records
from moldau.replication.turns import Turn
from moldau.testing import Cluster

TOPIC = "packed"
CORRUPT, NONE = 2, 0
NOW_MS = int(time.time() * 1000)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic(TOPIC, 1, {"compression.type": "gzip"})
        yield running


def batch(sequence: int, value_bytes: int, count: int = 1) -> bytes:
    value = random.Random(sequence).randbytes(value_bytes // 8) * 8
    records = [Record(i, NOW_MS, b"%d" % (sequence + i), value) for i in range(count)]
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


def fetched(connection: RawConnection, offset: int) -> list[tuple[int, bytes | None, int]]:
    """(offset, key, codec) of what one fetch gives."""
    request = fetch_request(TOPIC, 0, offset, bytes_max=1 << 22, wait_ms=0)
    data: Any = connection.ask(request)
    records = memoryview(data.responses[0].partitions[0].records or b"")
    found = []
    position = 0
    while position < len(records):
        header = read_header(records, position)
        whole = records[position : position + header.size]
        found += [(record.offset, record.key, header.codec_id) for record in iterate_records(whole)]
        position += header.size
    return found


def test_pipelined_requests_keep_their_order_though_some_are_recompressed(cluster: Cluster) -> None:
    sizes = [300_000, 10, 10, 20_000, 10, 300_000, 10] * 4
    requests = [produce_request(TOPIC, 0, batch(i, size)) for i, size in enumerate(sizes)]
    with RawConnection(cluster.bootstrap_servers) as connection:
        for number, request in enumerate(requests):
            connection.send(frame(request, number))
        answers = [decode_answer(requests[0], connection.receive()) for _ in requests]
        results = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [(int(r.error_code), r.base_offset) for r in results] == [(NONE, i) for i in range(len(sizes))]
        found: list[tuple[int, bytes | None, int]] = []
        while len(found) < len(sizes):
            found += fetched(connection, len(found))
    assert found == [(i, b"%d" % i, Codec.GZIP) for i in range(len(sizes))]


def test_large_batches_are_recompressed_off_the_loop(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[int, str] = {}
    really = validate.recompress

    def recompress(batch: memoryview, rules: Any) -> bytes:
        threads[len(batch)] = threading.current_thread().name
        return really(batch, rules)

    for module in (validate, log_module):
        monkeypatch.setattr(module, "recompress", recompress)
    large, small = batch(0, 300_000), batch(1, 10)
    with RawConnection(cluster.bootstrap_servers) as connection:
        for data in large, small:
            connection.ask(produce_request(TOPIC, 0, data))
    assert threads[len(large)] != threads[len(small)]


def test_a_damaged_batch_is_refused_before_anything_is_made_of_it(cluster: Cluster) -> None:
    damaged = bytearray(batch(0, 300_000))
    damaged[-10] ^= 1
    with RawConnection(cluster.bootstrap_servers) as connection:
        codes = [
            int(
                connection.ask(produce_request(TOPIC, 0, data)).responses[0].partition_responses[0].error_code
            )
            for data in (bytes(damaged), batch(0, 300_000))
        ]
    assert codes == [CORRUPT, NONE]


def test_without_an_answer_the_order_is_kept_too(cluster: Cluster) -> None:
    with RawConnection(cluster.bootstrap_servers) as connection:
        for sequence, size in enumerate((300_000, 10, 300_000)):
            connection.send(frame(produce_request(TOPIC, 0, batch(sequence, size), acks=0)))
        last = connection.ask(produce_request(TOPIC, 0, batch(3, 10)))
        assert last.responses[0].partition_responses[0].base_offset == 3


def test_turns_come_in_the_order_in_which_they_were_taken_across_partitions() -> None:
    async def main() -> list[str]:
        a, b = SimpleNamespace(turns={}), SimpleNamespace(turns={})
        done: list[str] = []

        async def work(name: str, turn: Turn, wait: asyncio.Event | None = None) -> None:
            if wait is not None:
                await wait.wait()
            await turn.come()
            done.append(name)
            turn.end()

        gate = asyncio.Event()
        first = asyncio.create_task(work("both", Turn("mine", [a, b]), gate))
        others = [
            asyncio.create_task(work(name, Turn("mine", [p])))
            for name, p in (("a", a), ("b", b), ("a again", a))
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == [] and a.turns
        await work("another connection", Turn("yours", [a, b]))
        assert done.pop() == "another connection"
        gate.set()
        await asyncio.gather(first, *others)
        assert a.turns == b.turns == {}
        return done

    done = asyncio.run(main())
    assert (
        done[0] == "both"
        and done.index("a") < done.index("a again")
        and set(done[1:]) == {"a", "b", "a again"}
    )
