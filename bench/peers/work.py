"""What every peer is asked to do, with messages of 1 KB in one log, and what is read off meanwhile."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Meter, Reading, WorkNotDone, percentiles, settle_machine
from bench.peers.port import TIMEOUT_S, Client, Peer
from bench.server import Server

MESSAGE_BYTES = 1000
SETTLE_S = 2.0
MADE_S = 5.0
"""RabbitMQ 3.10 has no leader any more for a stream that it made in the second before it was killed."""
WARM_UP = 2_000
RATE = 500
_STAMP = struct.Struct(">q")

SURVIVORS = "of 5,000 confirmed messages, there after kill -9"
START = "start to first confirmed message"
IDLE_MEMORY = "memory, idle"
ONE_BY_ONE = "one write after the other"
WRITE = "writing"
READ = "reading"
END_TO_END = f"from writer to reader, {RATE} a second"
MEMORY = "memory after all of it"
CPU = "CPU of the server for a message"


@dataclass(frozen=True, slots=True)
class Amounts:
    one_by_one: int
    throughput: int
    end_to_end_s: float
    confirmed: int = 5_000


FULL = Amounts(one_by_one=10_000, throughput=200_000, end_to_end_s=5)
QUICK = Amounts(one_by_one=1_000, throughput=20_000, end_to_end_s=1)


def start(peer: Peer, folder: Path) -> Iterator[Reading]:
    """A server that was never started; it is stopped afterwards."""
    server = peer.server(folder)
    started = time.perf_counter()
    with server:
        with _client(peer, server) as client:
            client.make("first")
            client.write_one_by_one("first", 1, b"1")
        yield Reading(START, time.perf_counter() - started, "s")
        time.sleep(SETTLE_S)
        yield Reading(IDLE_MEMORY, _memory_mib(server), "MiB")


def survivors(peer: Peer, folder: Path, amounts: Amounts) -> Iterator[Reading]:
    """kill -9 when the last message is confirmed, and a look at what is there after the next start."""
    server, log = peer.server(folder), "confirmed"
    found: list[bytes] = []
    with server:
        with _client(peer, server) as writer:
            writer.make(log)
            time.sleep(MADE_S)
            writer.write_all(log, amounts.confirmed - 1, b"any")
            writer.write_one_by_one(log, 1, b"last")
        server.kill()
    with server, _client(peer, server) as reader:
        reader.read(log, amounts.confirmed, found.append)
    if found[-1] != b"last":
        raise WorkNotDone(f"the last message is {found[-1][:20]!r}")
    yield Reading(SURVIVORS, len(found), "", more_is_better=True)


def run(peer: Peer, server: Server, log: str, amounts: Amounts) -> Iterator[Reading]:
    """One round of everything, on a running server."""
    value = os.urandom(MESSAGE_BYTES)
    with _client(peer, server) as client:
        client.make(log)
        client.write_one_by_one(log, 50, value)
        with Meter(server) as meter:
            latencies = client.write_one_by_one(log, amounts.one_by_one, value)
        yield from _percentiles(ONE_BY_ONE, latencies)
        yield Reading(f"{ONE_BY_ONE}, {CPU}", meter.cpu_s * 1e6 / amounts.one_by_one, "us")

        count = amounts.throughput
        client.make(f"{log}-large")
        settle_machine()
        yield from _rate(WRITE, server, count, lambda: client.write_all(f"{log}-large", count, value))
        reader: list[int] = []
        yield from _rate(
            READ, server, count, lambda: client.read(f"{log}-large", count, lambda _: reader.append(1))
        )
        client.make(f"{log}-paced")
        yield from _percentiles(END_TO_END, _end_to_end(peer, server, client, f"{log}-paced", amounts))


def memory(server: Server) -> Iterator[Reading]:
    yield Reading(MEMORY, _memory_mib(server), "MiB")


@contextlib.contextmanager
def _client(peer: Peer, server: Server) -> Iterator[Client]:
    client = peer.client(server)
    try:
        yield client
    finally:
        client.close()


def _memory_mib(server: Server) -> float:
    return server.usage().rss_bytes / 2**20


def _percentiles(what: str, latencies_s: list[float]) -> Iterator[Reading]:
    found = percentiles(latencies_s)
    for name in ("p50", "p99"):
        yield Reading(f"{what}, {name}", found[name] * 1000, "ms")


def _rate(what: str, server: Server, count: int, work: Callable[[], None]) -> Iterator[Reading]:
    with Meter(server) as meter:
        work()
    yield Reading(f"{what}, messages a second", count / meter.wall_s / 1000, "thousand", more_is_better=True)
    yield Reading(f"{what}, {CPU}", meter.cpu_s * 1e6 / count, "us")


def _end_to_end(peer: Peer, server: Server, writer: Client, log: str, amounts: Amounts) -> list[float]:
    """From the call that writes it in one thread to the message in the hands of another."""
    padding, count = bytes(MESSAGE_BYTES - _STAMP.size), int(RATE * amounts.end_to_end_s)
    latencies: list[float] = []

    def take(message: bytes) -> None:
        latencies.append((time.perf_counter_ns() - _STAMP.unpack_from(message)[0]) / 1e9)

    def read() -> None:
        with _client(peer, server) as reader:
            reader.read(log, count, take)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    writer.write_paced(log, RATE, count, lambda: _STAMP.pack(time.perf_counter_ns()) + padding)
    thread.join(TIMEOUT_S)
    if len(latencies) != count:
        raise WorkNotDone(f"{count - len(latencies)} messages did not arrive")
    return latencies[RATE // 5 :]
