"""Old records of a running broker: deleted on request, by time and by size, and what its consumers see of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from bench.server import MoldauServer, Server
from cluster.support import create_topic, wait_until
from interop.clients import Message
from interop.clients.confluent import Confluent
from moldau.testing import Cluster

NewServer = Callable[..., Server]
TIMEOUT_S = 10
OFFSET_OUT_OF_RANGE = 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"log.retention.check.interval.ms": 100}) as running:
        yield running


def delete_before(bootstrap: str, topic: str, offset: int) -> int:
    """DeleteRecords as confluent-kafka asks for it; the first offset afterwards."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: its end would leave the future for ever
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    return int(future.result(TIMEOUT_S).low_watermark)


def filled(bootstrap: str, topic: str, count: int = 10, **configs: str) -> Confluent:
    client = Confluent(bootstrap)
    create_topic(bootstrap, topic, **configs)
    client.produce(topic, [Message(b"%d" % index) for index in range(count)])
    return client


# Consumers behind the start, by client: the offsets that they get from offset 2 on, or the broker's error code


def read_with_confluent(bootstrap: str, topic: str, reset: str, wake: Callable[[], None]) -> int | list[int]:
    reset = {"none": "error"}.get(reset, reset)
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": reset}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 2)])
        found: list[int] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < 3 and time.monotonic() < deadline:
            wake()
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._AUTO_OFFSET_RESET, error
                return OFFSET_OUT_OF_RANGE
            found.append(message.offset() or 0)
        return found
    finally:
        consumer.close()


def read_with_kafka_python(
    bootstrap: str, topic: str, reset: str, wake: Callable[[], None]
) -> int | list[int]:
    from kafka.errors import OffsetOutOfRangeError

    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset=reset)
    try:
        place = PythonPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 2)
        found: list[int] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < 3 and time.monotonic() < deadline:
            wake()
            found += [record.offset for some in consumer.poll(200).values() for record in some]
        return found
    except OffsetOutOfRangeError:
        return OFFSET_OUT_OF_RANGE
    finally:
        consumer.close()


def read_with_aiokafka(bootstrap: str, topic: str, reset: str, wake: Callable[[], None]) -> int | list[int]:
    from aiokafka.errors import OffsetOutOfRangeError

    async def read() -> int | list[int]:
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset=reset)
        async with consumer:
            place = AioPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 2)
            found: list[int] = []
            deadline = time.monotonic() + TIMEOUT_S
            try:
                while len(found) < 3 and time.monotonic() < deadline:
                    await asyncio.to_thread(wake)
                    some = (await consumer.getmany(timeout_ms=200)).values()
                    found += [record.offset for records in some for record in records]
            except OffsetOutOfRangeError:
                return OFFSET_OUT_OF_RANGE
        return found

    return asyncio.run(read())


READERS = {
    "confluent-kafka": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("name", READERS)
def test_a_consumer_behind_the_start_does_what_its_auto_offset_reset_says(
    cluster: Cluster, name: str, reset: str
) -> None:
    bootstrap, topic = cluster.bootstrap_servers, f"behind-{name}-{reset}"
    client = filled(bootstrap, topic)
    assert delete_before(bootstrap, topic, 6) == 6

    def produce_more() -> None:
        """So that who begins at the end gets something, whenever it gets there."""
        if reset == "latest":
            client.produce(topic, [Message(b"later")])

    found = READERS[name](bootstrap, topic, reset, produce_more)
    if reset == "earliest":
        assert isinstance(found, list) and found[:3] == [6, 7, 8]
    elif reset == "latest":
        assert isinstance(found, list) and len(found) >= 3 and found[0] >= 10
    else:
        assert found == OFFSET_OUT_OF_RANGE


def test_minus_1_deletes_all_and_a_restart_keeps_the_start() -> None:
    with Cluster() as cluster:
        client = filled(cluster.bootstrap_servers, "trimmed")
        assert delete_before(cluster.bootstrap_servers, "trimmed", 4) == 4
        cluster.restart()
        assert client.watermarks("trimmed") == (4, 10)
        assert [m.offset for m in client.consume("trimmed", offset=4, count=6)] == list(range(4, 10))
        assert delete_before(cluster.bootstrap_servers, "trimmed", -1) == 10
        cluster.restart()
        assert client.watermarks("trimmed") == (10, 10)
        client.produce("trimmed", [Message(b"next")])
        assert [m.value for m in client.consume("trimmed", offset=10, count=1)] == [b"next"]


def test_an_answered_deletion_survives_kill_9(new_server: NewServer) -> None:
    server = new_server().start()
    client = filled(server.bootstrap_servers, "trimmed")
    assert delete_before(server.bootstrap_servers, "trimmed", 4) == 4
    server.kill()
    server.start()
    if isinstance(server, MoldauServer):  # Kafka writes it down once a minute
        assert client.watermarks("trimmed") == (4, 10)


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [
        ("kept", 11, KafkaError.OFFSET_OUT_OF_RANGE),
        ("compacted", 1, KafkaError.POLICY_VIOLATION),
    ],
)
def test_what_may_not_be_deleted_is_refused(cluster: Cluster, topic: str, offset: int, code: int) -> None:
    policy = "compact" if topic == "compacted" else "delete"
    create_topic(cluster.bootstrap_servers, topic, cleanup_policy=policy)
    Confluent(cluster.bootstrap_servers).produce(topic, [Message(b"v", key=b"k")] * 10)
    with pytest.raises(KafkaException) as refusal:
        delete_before(cluster.bootstrap_servers, topic, offset)
    assert refusal.value.args[0].code() == code


def test_old_records_go_by_time_once_the_setting_says_so(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap_servers, "aged", retention_ms="-1", file_delete_delay_ms="0")
    client = Confluent(cluster.bootstrap_servers)
    client.produce("aged", [Message(b"old", timestamp_ms=1_600_000_000_000)])
    time.sleep(0.3)  # three looks at retention
    assert client.watermarks("aged") == (0, 1)
    client.alter_configs("aged", put={"retention.ms": "3600000"})
    wait_until(lambda: client.watermarks("aged") == (1, 1), what="the old record to go")
    client.produce("aged", [Message(b"young")])
    assert [m.value for m in client.consume("aged", offset=1, count=1)] == [b"young"]


def test_a_log_is_kept_to_its_size_and_its_files_go(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": 100, "log.segment.delete.delay.ms": 200}
    with MoldauServer(tmp_path / "broker", settings) as server:
        configs = {"segment_bytes": "1048576", "retention_bytes": "2097152"}
        create_topic(server.bootstrap_servers, "sized", **configs)
        client = Confluent(server.bootstrap_servers)
        for _ in range(8):
            client.produce("sized", [Message(bytes(100_000))] * 10)
        folder = next((tmp_path / "broker").rglob("sized-0"))

        def bytes_on_disk() -> int:
            total = 0
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                    total += path.stat().st_size if ".log" in path.name else 0
            return total

        wait_until(lambda: bytes_on_disk() <= 3 * 1048576, what="old segments to be removed")
        assert bytes_on_disk() >= 2097152
        first, following = client.watermarks("sized")
        assert (first > 0, following) == (True, 80)
        assert len(client.consume("sized", offset=first, count=following - first)) == following - first
