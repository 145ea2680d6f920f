"""Topics whose records are known: filled through raw requests, batch by batch, so that gigabytes take seconds.

Batches have the size of a producer's default, and a topic repeats a few of them: sums are known without reading.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.raw import RawConnection, frame, produce_request
from bench.server import Server
from bench.spark_blocks import BATCH_BYTES, IN_FLIGHT, TIMESTAMP_MS, values
from bench.topics import fresh_topic
from moldau.records.compression import CODEC_BY_NAME
from moldau.records.record import Record, build_batch

PAGES = 50
EVENTS_PER_BATCH = 80
BATCHES_OF_EVENTS = 25
START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "curl/8.5.0")


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic and what is in it."""

    name: str
    rows: int
    value_bytes: int


@contextlib.contextmanager
def filled(
    server: Server, contents: Sequence[Sequence[bytes]], rows: int, codec: str, partitions: int
) -> Iterator[Filled]:
    """A topic with at least so many rows: the given batches of values, over and over, in all partitions alike."""
    batches = [_batch(each, codec) for each in contents]
    rows_of_a_round = sum(map(len, contents)) * partitions
    rounds = -(-rows // rows_of_a_round)
    with fresh_topic(server, partitions, retention_ms="-1") as name:
        requests = [
            frame(produce_request(name, partition, batch))
            for batch in batches
            for partition in range(partitions)
        ]
        _send(server.bootstrap_servers, itertools.chain.from_iterable(itertools.repeat(requests, rounds)))
        size = sum(len(value) for each in contents for value in each) * partitions * rounds
        yield Filled(name, rows_of_a_round * rounds, size)


def texts(size: int) -> list[list[bytes]]:
    """One batch of records of a size, which compress to about a third."""
    return [values(size, BATCH_BYTES // (size + 12))]


def events(seed: int = 1) -> list[list[bytes]]:
    """Page views as JSON, over ten minutes, with more fields than a query asks for."""
    draw = random.Random(seed)
    return [
        [_event(draw, number * EVENTS_PER_BATCH + index) for index in range(EVENTS_PER_BATCH)]
        for number in range(BATCHES_OF_EVENTS)
    ]


def _event(draw: random.Random, number: int) -> bytes:
    at = START + timedelta(milliseconds=300 * number)
    event = {
        "at": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z",
        "user": f"user-{draw.randrange(100_000)}",
        "page": f"/page/{draw.randrange(PAGES)}",
        "referrer": f"https://example.org/from/{draw.randrange(1000)}",
        "agent": draw.choice(AGENTS),
        "duration_ms": draw.randrange(10, 60_000),
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _batch(contents: Sequence[bytes], codec: str) -> bytes:
    records = [
        Record(number, TIMESTAMP_MS + number, b"%016d" % number, value)
        for number, value in enumerate(contents)
    ]
    return build_batch(records, codec=CODEC_BY_NAME[codec])


def _send(bootstrap: str, requests: Iterator[bytes]) -> None:
    with RawConnection(bootstrap) as connection:
        waiting = 0
        for request in requests:
            connection.send(request)
            waiting += 1
            if waiting == IN_FLIGHT:
                connection.receive()
                waiting -= 1
        for _ in range(waiting):
            connection.receive()
