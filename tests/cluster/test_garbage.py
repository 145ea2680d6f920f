"""Memory stays flat without the garbage collector: what a request leaves behind is freed when it is answered.

The broker's collector hardly ever looks at what has lived for long (`tune_gc`), as a look at all of it would hold up
every client. A request that waits and then goes round in a circle would stay, with what it has read.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from bench.server import MoldauServer
from cluster.support import create_topic, wait_until
from golden import store

PROGRAM = Path(__file__).parent / "uncollected.py"
PATIENCE_S = 60
ANSWER_PATIENCE_S = 0.2
MESSAGES = 100
TRANSACTIONS = 20
TOPIC = "topic"
AT_ONCE = {"log.segment.delete.delay.ms": 0}


class UncollectedServer(MoldauServer):
    def command(self) -> Sequence[str]:
        return [sys.executable, str(PROGRAM), str(self._garbage), *super().command()[1:]]

    @property
    def _garbage(self) -> Path:
        return self.folder / "garbage.json"

    def garbage(self) -> dict[str, int]:
        """What the collector would have found: how many objects of which class."""
        self._garbage.touch()
        wait_until(lambda: self._garbage.stat().st_size > 0, PATIENCE_S, what="the collector")
        found: dict[str, int] = json.loads(self._garbage.read_text())
        return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[UncollectedServer]:
    with UncollectedServer(tmp_path / "broker", AT_ONCE) as server:
        yield server


def test_long_polls_groups_and_transactions_leave_no_garbage(server: UncollectedServer) -> None:
    create_topic(server.bootstrap_servers, TOPIC, 2)
    with (
        reading(server, "classic", isolation="read_uncommitted") as read_all,
        reading(server, "classic", isolation="read_committed") as read_committed,
        reading(server, "consumer", isolation="read_committed") as read_new,
    ):
        writer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
        for number in range(MESSAGES):
            writer.produce(TOPIC, str(number))
            assert writer.flush(PATIENCE_S) == 0
        transactional = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": "id"})
        transactional.init_transactions(PATIENCE_S)
        for number in range(TRANSACTIONS):
            transactional.begin_transaction()
            transactional.produce(TOPIC, str(number))
            transactional.commit_transaction(PATIENCE_S)
        for read in (read_all, read_committed, read_new):
            read(MESSAGES + TRANSACTIONS)
    assert server.garbage() == {}


def test_no_kind_of_request_leaves_garbage(server: UncollectedServer) -> None:
    for exchange in store.load():
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.settimeout(ANSWER_PATIENCE_S)
            connection.sendall(struct.pack(">i", len(exchange.request)) + exchange.request)
            try:
                connection.recv(1 << 20)
            except TimeoutError:
                pass  # it waits for other members, or gets no answer: its client goes away
    assert server.garbage() == {}


def test_a_deleted_topic_leaves_neither_open_files_nor_garbage(server: UncollectedServer) -> None:
    create_topic(server.bootstrap_servers, TOPIC, 2, segment_bytes="1048576")
    before = open_files(server.pid)
    transactional = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": "id"})
    transactional.init_transactions(PATIENCE_S)
    for number in range(MESSAGES):  # of 50 KB: a few segments, with indexes of aborted transactions
        transactional.begin_transaction()
        transactional.produce(TOPIC, b"x" * 50_000, partition=number % 2)
        transactional.flush(PATIENCE_S)
        transactional.abort_transaction(PATIENCE_S)
    assert len([path for path in open_files(server.pid) - before if f"/{TOPIC}-" in path]) > 6
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
    wait_until(
        lambda: not [path for path in open_files(server.pid) if f"/{TOPIC}-" in path],
        PATIENCE_S,
        what="the files of the deleted topic to be closed",
    )
    assert server.garbage() == {}


def open_files(pid: int) -> set[str]:
    paths = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            paths.add(str(descriptor.readlink()))
    return paths


@contextmanager
def reading(server: MoldauServer, protocol: str, *, isolation: str) -> Iterator[Callable[[int], None]]:
    """A reader in a group of its own; it is called with how many messages it must see."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": f"{protocol}-{isolation}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.subscribe([TOPIC])
    seen = 0

    def read(count: int) -> None:
        nonlocal seen

        def has_all() -> bool:
            nonlocal seen
            seen += len(consumer.consume(count, timeout=0.1))
            return seen >= count

        wait_until(has_all, PATIENCE_S, what=f"{count} messages")

    try:
        yield read
    finally:
        consumer.close()
