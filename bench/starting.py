"""From the start of a process to the first acknowledged message; memory when idle and per idle connection."""

from __future__ import annotations

import contextlib
import datetime
import resource
import socket
import time
from collections.abc import Iterator

from bench.measure import Reading
from bench.raw import (
    RawConnection,
    api_versions_request,
    frame,
    nested,
    produce_request,
    request_class,
)
from bench.raw_load import batch_of
from bench.server import HOST, POLL_INTERVAL_S, Server

START_TIMEOUT_S = 60
SETTLE_S = 2.0
CONNECTIONS = 5000
FILES_BESIDE_CONNECTIONS = 200

START_CPU = "CPU from start to ready"
IDLE_MEMORY = "memory, idle"
CONNECTION_MEMORY = "memory per idle connection"


def start_up(server: Server) -> Iterator[Reading]:
    """A server that was never started; it is running afterwards. Formatting Kafka's folder is not counted."""
    started = time.perf_counter()
    server.launch()
    _first_message(server)
    yield Reading("start to first acknowledged message", time.perf_counter() - started, "s")
    yield Reading(START_CPU, server.usage().cpu_s, "s")
    time.sleep(SETTLE_S)
    yield Reading(IDLE_MEMORY, server.usage().rss_bytes / 2**20, "MiB")


def _first_message(server: Server) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    message = produce_request("first", 0, batch_of(1), acks=-1)
    creation = _create_topic_request("first")
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), RawConnection(server.bootstrap_servers) as connection:
            connection.ask(creation)
            while time.monotonic() < deadline:
                if connection.ask(message).responses[0].partition_responses[0].error_code == 0:
                    return
                time.sleep(POLL_INTERVAL_S)
                connection.ask(creation)
        time.sleep(POLL_INTERVAL_S)
    raise TimeoutError(f"{server.name} acknowledged nothing within {START_TIMEOUT_S} s:\n{server.output()}")


def _create_topic_request(name: str) -> object:
    cls = request_class(19, 7)
    topic = nested(cls, "topics")(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return cls(topics=(topic,), timeout=datetime.timedelta(seconds=10))


def idle_connections(server: Server) -> Iterator[Reading]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, hard - FILES_BESIDE_CONNECTIONS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + FILES_BESIDE_CONNECTIONS), hard))
    hello = frame(api_versions_request())
    before = server.usage().rss_bytes
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection((HOST, server.port), START_TIMEOUT_S)
            connections.append(connection)
            connection.sendall(hello)
        for connection in connections:
            connection.recv(1 << 16)
        grown = server.usage().rss_bytes - before
    finally:
        for connection in connections:
            connection.close()
    yield Reading(CONNECTION_MEMORY, grown / count / 1000, "KB")
