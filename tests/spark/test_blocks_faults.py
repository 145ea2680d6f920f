"""The block reader while brokers fail: all rows, in order, once; or an error that says why."""

from __future__ import annotations

import datetime
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.records.record import Record, build_batch
from moldau.spark.blocks import brokers
from moldau.spark.blocks.errors import CorruptData, ReadFailed
from moldau.spark.blocks.read import read_split
from moldau.spark.blocks.settings import ReadSettings
from moldau.testing import Cluster
from moldau.wire.codec import encode_response_frame
from moldau.wire.fetch import FetchedPartition, pack_fetch_response
from moldau.wire.frames import parse_request_header
from spark.topics import create_topic, produce_values, settings_of, whole

ZERO = datetime.timedelta()
ROWS = 12_000
SIZE = 2_000


@pytest.fixture(autouse=True)
def no_idle_connections() -> Iterator[None]:
    """Each test's brokers are its own."""
    yield
    for connection in brokers._idle.values():
        connection.close()
    brokers._idle.clear()
    brokers._known.clear()


def expected_values() -> list[bytes]:
    return [(b"%08d" % number) * (SIZE // 8) for number in range(ROWS)]


def read_with(settings: ReadSettings, topic: str, do: Callable[[int], None]) -> list[bytes]:
    """Read all of a topic; `do` is called after each batch, with its number."""
    values: list[bytes] = []
    for number, batch in enumerate(read_split(settings, whole(topic, ROWS))):
        values += batch["value"].to_pylist()
        do(number)
    return values


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        create_topic(running.bootstrap_servers, "t")
        produce_values(
            running.bootstrap_servers,
            "t",
            expected_values(),
            acks="all",
            queue_buffering_max_messages=100_000,
        )
        running.wait_in_sync()
        yield running


def test_a_leader_that_is_killed_in_the_middle(cluster: Cluster) -> None:
    killed: list[int] = []

    def kill(number: int) -> None:
        if number in (0, 2):
            leader = cluster.wait_for_leader("t")
            cluster.kill(leader)
            killed.append(leader)
            cluster.wait_for_leader("t")
            cluster.start(leader)
            cluster.wait_in_sync()

    assert read_with(settings_of(cluster.bootstrap_servers, "value"), "t", kill) == expected_values()
    assert len(killed) == 2


def test_a_leader_that_hands_over_in_the_middle(cluster: Cluster) -> None:
    def move(number: int) -> None:
        leader = cluster.wait_for_leader("t")
        others = [broker for broker in cluster.in_sync("t") if broker != leader]
        cluster.elect("t", 0, others[number % len(others)])

    assert read_with(settings_of(cluster.bootstrap_servers, "value"), "t", move) == expected_values()


def test_a_cluster_that_is_away_for_a_while(cluster: Cluster) -> None:
    """All connections break, and for some time nobody answers."""

    def go_away(number: int) -> None:
        if number == 1:
            for broker in (1, 2, 3):
                cluster.kill(broker)
            back = threading.Timer(0.5, lambda: [cluster.start(broker) for broker in (1, 2, 3)])
            back.start()
            timers.append(back)

    timers: list[threading.Timer] = []
    try:
        assert read_with(settings_of(cluster.bootstrap_servers, "value"), "t", go_away) == expected_values()
    finally:
        for timer in timers:
            timer.join()


def test_nobody_there_is_an_error_in_time() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ReadFailed, match="no progress at 0 for 300 ms"):
            list(read_split(settings_of(address, timeout_ms=300), whole("t", 1)))
    assert time.monotonic() - began < 30


# A broker that says what it is told to.

TOPIC_ID = UUID(int=99)
Reply = Callable[[int], bytes] | None
"""A frame for a correlation id; None: hang up."""


class ScriptedBroker:
    """Answers ApiVersions and Metadata properly, and Fetch from a script, whose last entry is said again and again."""

    def __init__(self, *fetches: Reply) -> None:
        self._fetches = list(fetches)
        self.fetches_seen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> ScriptedBroker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()
        self._thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while head := stream.read(4):
                frame = memoryview(stream.read(struct.unpack(">i", head)[0]))
                api_key, version, number, _, _ = parse_request_header(frame)
                reply = self._reply(api_key, version, number)
                if reply is None:
                    break
                connection.sendall(reply)
        except (OSError, ValueError):
            pass
        finally:
            stream.close()
            connection.close()

    def _reply(self, api_key: int, version: int, number: int) -> bytes | None:
        if api_key == 18:
            served = [(1, 4, 17), (2, 1, 7), (3, 0, 12), (18, 0, 3)]
            keys = tuple(SimpleNamespace(api_key=k, min_version=a, max_version=b) for k, a, b in served)
            return encode_response_frame(18, version, number, SimpleNamespace(error_code=0, api_keys=keys))
        if api_key == 3:
            return encode_response_frame(3, version, number, self._metadata())
        reply = self._fetches.pop(0) if len(self._fetches) > 1 else self._fetches[0]
        self.fetches_seen += 1
        return None if reply is None else reply(number)

    def _metadata(self) -> Any:
        partition = SimpleNamespace(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=3,
            replica_nodes=(1,), isr_nodes=(1,), offline_replicas=(),
        )  # fmt: skip
        topic = SimpleNamespace(
            error_code=0, name="t", topic_id=TOPIC_ID, is_internal=False, partitions=(partition,),
            topic_authorized_operations=-(2**31),
        )  # fmt: skip
        broker = SimpleNamespace(node_id=1, host="127.0.0.1", port=self._port, rack=None)
        return SimpleNamespace(
            throttle_time=ZERO, brokers=(broker,), cluster_id="c", controller_id=1, topics=(topic,)
        )


def fetched(
    records: bytes, high_watermark: int = 10, error: int = 0, throttle_ms: int = 0
) -> Callable[[int], bytes]:
    def reply(number: int) -> bytes:
        part = FetchedPartition(0, error, high_watermark, high_watermark, 0, None, -1, None, None, records)
        pieces = pack_fetch_response(number, 17, throttle_ms, 0, 0, [(TOPIC_ID.bytes, [part])])
        return b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]

    return reply


def one(offset: int) -> bytes:
    return build_batch([Record(offset, 0, None, b"%d" % offset)])


def read_scripted(*fetches: Reply, next_offset: int = 3, timeout_ms: int = 20_000) -> list[bytes]:
    with ScriptedBroker(*fetches) as broker:
        settings = settings_of(broker.bootstrap, "value", timeout_ms=timeout_ms)
        batches: Sequence[Any] = list(read_split(settings, whole("t", next_offset)))
    return [value for batch in batches for value in batch["value"].to_pylist()]


def test_a_gap_to_the_end_of_the_log_ends_the_range() -> None:
    """Compaction took the last records, and the log's last batch lies before the range's end."""
    assert read_scripted(fetched(one(0)), fetched(b"")) == [b"0"]


def test_an_empty_answer_is_not_yet_a_gap() -> None:
    assert read_scripted(fetched(b""), fetched(b""), fetched(one(0) + one(1) + one(2))) == [b"0", b"1", b"2"]


def test_a_throttled_answer_is_no_gap() -> None:
    many = [fetched(b"", throttle_ms=1) for _ in range(9)]
    assert read_scripted(*many, fetched(one(0) + one(2))) == [b"0", b"2"]


def test_what_passes_is_waited_for() -> None:
    not_leader, fenced, not_available = fetched(b"", error=6), fetched(b"", error=74), fetched(b"", error=78)
    assert read_scripted(fetched(one(0)), not_leader, fenced, not_available, fetched(one(1) + one(2))) == [
        b"0",
        b"1",
        b"2",
    ]


def test_what_does_not_pass_is_an_error_at_once() -> None:
    with pytest.raises(ReadFailed, match="the broker answers corrupt_message"):
        read_scripted(fetched(b"", error=2), timeout_ms=600_000)


def test_a_broker_that_hangs_up_is_asked_again() -> None:
    assert read_scripted(None, fetched(one(0)), None, fetched(one(1) + one(2))) == [b"0", b"1", b"2"]


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    def half(number: int) -> bytes:
        return fetched(one(0) + one(1) + one(2))(number)[:-40]

    def lying(number: int) -> bytes:
        return struct.pack(">ii", 2**31 - 1, number)

    def of_another(number: int) -> bytes:
        return fetched(one(0))(number + 1)

    def nonsense(number: int) -> bytes:
        return struct.pack(">ii", 24, number) + b"\xff" * 20

    whole_answer = fetched(one(0) + one(1) + one(2))
    for broken in (lying, of_another, nonsense):
        assert read_scripted(broken, whole_answer) == [b"0", b"1", b"2"]

    with ScriptedBroker(half) as broker, pytest.raises(ReadFailed, match="no progress"):
        config = {"socket.timeout.ms": "200"}
        settings = settings_of(broker.bootstrap, "value", timeout_ms=500, client_config=config)
        list(read_split(settings, whole("t", 3)))


def test_a_batch_that_does_not_fit_is_asked_for_with_more_room() -> None:
    batch = one(0)
    assert read_scripted(fetched(batch[:-5]), fetched(batch + one(2))) == [b"0", b"2"]


def test_damage_is_not_read_around() -> None:
    damaged = bytearray(one(1))
    damaged[-2] ^= 1
    with pytest.raises(CorruptData, match=r"reading t-0 from 0 to 3: the checksum of the batch at offset 1"):
        read_scripted(fetched(one(0) + bytes(damaged)))
