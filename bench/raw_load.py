"""Broker CPU per request, with frames made before and one blocking connection: nothing but the broker is measured.

These are the budgets that Moldau is held to (docs/benchmarks.md lists them beside what was measured).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench.measure import MB, Meter, Reading, WorkNotDone
from bench.raw import RawConnection, fetch_request, frame, produce_request
from bench.server import Server
from bench.topics import expect_messages, fresh_topic
from moldau.records.record import Record, build_batch

IN_FLIGHT = 5
MESSAGE_BYTES = 1000
LARGE_BATCH_MESSAGES = 950  # just below 1 MB with their framing
FETCH_BYTES = 1_000_000
POLL_WAIT_MS = 2

PRODUCE_ONE_BY_ONE = "produce one 1 KB message, one by one"
PRODUCE_PIPELINED = "produce one 1 KB message, 5 in flight"
PRODUCE_LARGE = "produce, 1 MB requests"
FETCH_LARGE = "fetch, 1 MB answers"
FETCH_SMALL = "one small fetch"
FETCH_EMPTY = "an empty long poll"


def batch_of(count: int) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch([Record(i, now_ms, None, os.urandom(MESSAGE_BYTES)) for i in range(count)])


def small_requests(server: Server, count: int) -> Iterator[Reading]:
    yield from small_produce(server, count)
    yield from small_fetches(server, count // 2)


def small_produce(server: Server, count: int) -> Iterator[Reading]:
    with fresh_topic(server) as topic, RawConnection(server.bootstrap_servers) as connection:
        request = frame(produce_request(topic, 0, batch_of(1)))
        exchange(connection, request, count // 10, 1)
        for name, in_flight in ((PRODUCE_ONE_BY_ONE, 1), (PRODUCE_PIPELINED, IN_FLIGHT)):
            with Meter(server) as meter:
                exchange(connection, request, count, in_flight)
            yield Reading(name, meter.cpu_s * 1e6 / count, "us")
        expect_messages(server, topic, count // 10 + 2 * count)


def exchange(connection: RawConnection, request: bytes, count: int, in_flight: int) -> None:
    """Send one request `count` times, with at most `in_flight` unanswered."""
    for _ in range(min(in_flight, count)):
        connection.send(request)
    for _ in range(count - min(in_flight, count)):
        connection.receive()
        connection.send(request)
    for _ in range(min(in_flight, count)):
        connection.receive()


def fetch_all(connection: RawConnection, fetches: list[bytes], bytes_min: int) -> int:
    """Fetch one by one; each answer must carry a message of `bytes_min`. Returns the bytes received."""
    received = 0
    for fetch in fetches:
        connection.send(fetch)
        size = len(connection.receive())
        if size < bytes_min:
            raise WorkNotDone(f"an answer of {size} bytes holds no message")
        received += size
    return received


def large_requests(server: Server, total_bytes: int) -> Iterator[Reading]:
    batch = batch_of(LARGE_BATCH_MESSAGES)
    count = total_bytes // len(batch)
    megabytes = count * len(batch) / MB
    with fresh_topic(server) as topic, RawConnection(server.bootstrap_servers) as connection:
        with Meter(server) as meter:
            exchange(connection, frame(produce_request(topic, 0, batch)), count, IN_FLIGHT)
        expect_messages(server, topic, count * LARGE_BATCH_MESSAGES)
        yield Reading(PRODUCE_LARGE, meter.cpu_s * 1000 / megabytes, "ms/MB")
        fetches = [
            frame(fetch_request(topic, 0, number * LARGE_BATCH_MESSAGES, bytes_max=FETCH_BYTES))
            for number in range(count)
        ]
        with Meter(server) as meter:
            received = fetch_all(connection, fetches, len(batch))
        yield Reading(FETCH_LARGE, meter.cpu_s * 1000 / (received / MB), "ms/MB")


def small_fetches(server: Server, count: int) -> Iterator[Reading]:
    with fresh_topic(server) as topic, RawConnection(server.bootstrap_servers) as connection:
        exchange(connection, frame(produce_request(topic, 0, batch_of(1))), count, IN_FLIGHT)
        fetches = [frame(fetch_request(topic, 0, offset, bytes_max=1200)) for offset in range(count)]
        with Meter(server) as meter:
            fetch_all(connection, fetches, MESSAGE_BYTES)
        yield Reading(FETCH_SMALL, meter.cpu_s * 1e6 / count, "us")
        polls = count // 10
        empty = frame(fetch_request(topic, 0, count, wait_ms=POLL_WAIT_MS))
        with Meter(server) as meter:
            exchange(connection, empty, polls, 1)
        yield Reading(FETCH_EMPTY, meter.cpu_s * 1e6 / polls, "us")
