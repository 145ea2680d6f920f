"""The cost of finding a place in a log as it grows: fetches at random offsets, and look-ups by timestamp.

The log is filled with real batches through the broker. Requests go one by one over a raw connection.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.measure import MB, Meter, Reading, WorkNotDone, percentiles
from bench.raw import RawConnection, fetch_request, frame, nested, produce_request, request_class
from bench.raw_load import IN_FLIGHT, MESSAGE_BYTES, exchange
from bench.server import Server
from bench.topics import expect_messages, fresh_topic
from moldau.records.record import Record, build_batch

MESSAGES_PER_BATCH = 16
LIST_OFFSETS_VERSION = 7


def growing_log(server: Server, sizes: Sequence[int], look_ups: int) -> Iterator[Reading]:
    """Readings at each size of the log, in bytes, ascending."""
    chance = random.Random(1)
    values = [chance.randbytes(MESSAGE_BYTES) for _ in range(MESSAGES_PER_BATCH)]
    first_ms = int(time.time() * 1000)
    batch = build_batch([Record(i, first_ms, None, value) for i, value in enumerate(values)])
    written = 0
    # One batch is sent again and again: the broker's own timestamps tell its copies apart.
    with (
        fresh_topic(server, message_timestamp_type="LogAppendTime") as topic,
        RawConnection(server.bootstrap_servers) as connection,
    ):
        request = frame(produce_request(topic, 0, batch))
        for size in sizes:
            wanted = max(1, size // len(batch))
            exchange(connection, request, wanted - written, IN_FLIGHT)
            written = wanted
            expect_messages(server, topic, written * MESSAGES_PER_BATCH)
            offsets = [chance.randrange(written * MESSAGES_PER_BATCH) for _ in range(look_ups)]
            fetches = [frame(fetch_request(topic, 0, offset, bytes_max=1)) for offset in offsets]
            yield from _timed(server, connection, fetches, f"fetch at a random offset, log of {_named(size)}")
            times = [chance.randint(first_ms, int(time.time() * 1000)) for _ in range(look_ups // 4)]
            asked = [frame(list_offsets_request(topic, when)) for when in times]
            _expect_an_offset(connection, list_offsets_request(topic, first_ms))
            yield from _timed(server, connection, asked, f"offset of a timestamp, log of {_named(size)}")


def _timed(server: Server, connection: RawConnection, frames: list[bytes], what: str) -> Iterator[Reading]:
    latencies = []
    for request in frames[: len(frames) // 10]:
        connection.send(request)
        connection.receive()
    with Meter(server) as meter:
        for request in frames:
            started = time.perf_counter()
            connection.send(request)
            connection.receive()
            latencies.append(time.perf_counter() - started)
    yield Reading(f"{what}, broker CPU", meter.cpu_s * 1e6 / len(frames), "us")
    yield Reading(f"{what}, p50", percentiles(latencies)["p50"] * 1e6, "us")


def _expect_an_offset(connection: RawConnection, request: Any) -> None:
    (found,) = connection.ask(request).topics[0].partitions
    if found.error_code or found.offset != 0:
        raise WorkNotDone(f"the first message was not found by its time: {found}")


def list_offsets_request(topic: str, timestamp_ms: int) -> Any:
    cls = request_class(2, LIST_OFFSETS_VERSION)
    topics = nested(cls, "topics")
    partition = nested(topics, "partitions")(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp_ms
    )
    return cls(replica_id=-1, isolation_level=0, topics=(topics(name=topic, partitions=(partition,)),))


def _named(size: int) -> str:
    return f"{size // 1_000_000_000} GB" if size >= 1_000_000_000 else f"{size // MB} MB"
