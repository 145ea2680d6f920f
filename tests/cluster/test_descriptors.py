"""A crowd of connections takes no descriptor that logs, the store or the health port need."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.raw import RawConnection, fetch_request, nested, produce_request, request_class
from bench.server import MoldauServer, Server
from cluster.support import create_topic, one_record_batch
from moldau.runtime.real.free_ports import free_port

NewServer = Callable[..., Server]
DESCRIPTORS = 256
CROWD = 300
PARTITIONS = 100


@contextlib.contextmanager
def crowd(port: int, count: int) -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connections.append(socket.create_connection(("127.0.0.1", port), 10))
        yield connections
    finally:
        for connection in connections:
            connection.close()


def write(connection: RawConnection, topic: str, partition: int, value: bytes) -> int:
    answer = connection.ask(produce_request(topic, partition, one_record_batch(value)))
    (outcome,) = answer.responses[0].partition_responses
    assert outcome.error_code == 0, (topic, partition)
    return int(outcome.base_offset)


def read(connection: RawConnection, topic: str, partition: int) -> bytes:
    (found,) = connection.ask(fetch_request(topic, partition, 0)).responses[0].partitions
    assert found.error_code == 0, (topic, partition)
    return bytes(found.records)


def create_topics_request(topic: str, partitions: int) -> Any:
    cls = request_class(19, 7)
    wanted = nested(cls, "topics")(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    return cls(topics=(wanted,), timeout=datetime.timedelta(seconds=30), validate_only=False)


def health(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        return int(answer.status)


def test_300_connections_leave_logs_topics_and_health_what_they_need_of_256_descriptors(
    new_server: NewServer,
) -> None:
    http = free_port()
    server = new_server(moldau_http_port=http)
    if not isinstance(server, MoldauServer):
        pytest.skip("Kafka keeps no descriptors back")
    server.open_files_max = DESCRIPTORS
    server.start()
    create_topic(server.bootstrap_servers, "wide", PARTITIONS)
    create_topic(server.bootstrap_servers, "rolled", 1, segment_bytes="1048576")
    with RawConnection(server.bootstrap_servers) as connection, crowd(server.port, CROWD):
        for partition in range(PARTITIONS):
            write(connection, "wide", partition, b"in a crowd")
            assert b"in a crowd" in read(connection, "wide", partition)
        for number in range(5):
            assert write(connection, "rolled", 0, b"x" * 600_000) == number
        assert len(list(server.data.glob("**/rolled-0/*.log"))) >= 4
        (made,) = connection.ask(create_topics_request("new", 50)).topics
        assert made.error_code == 0
        for partition in range(50):
            write(connection, "new", partition, b"of a new topic")
        assert health(http) == 200
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < DESCRIPTORS
    told = (server.folder / "stderr.txt").read_text()
    assert told.count("kept for logs") == 1, told
    assert "Too many open files" not in told


def test_100_half_sent_heads_do_not_deny_health(new_server: NewServer) -> None:
    http = free_port()
    server = new_server(moldau_http_port=http)
    if not isinstance(server, MoldauServer):
        pytest.skip("Kafka has no such port")
    server.start()
    with crowd(http, 100) as connections:
        for connection in connections:
            with contextlib.suppress(ConnectionError):  # it has made room already
                connection.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert health(http) == 200
