"""Readers that were away for too long: their offset is no longer there, and `auto.offset.reset` decides. L5, C1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import OffsetOutOfRangeError as AioOutOfRange
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from bench.apache_kafka import Distribution

pytestmark = [pytest.mark.interop]

MESSAGES, START, LOST = 10, 5, 2
"""Ten messages are written, the log is then made to begin at the fifth; readers ask for the second."""
ARRIVAL_S_MAX = 30
LATE = b"late"

Read = Callable[[str, str, str, Callable[[], None]], list[bytes]]
"""(address, topic, policy, write one more) -> the values read from the lost offset on; OutOfRange is raised."""


class OutOfRange(Exception):
    """What each client raises in its own way."""


@pytest.fixture
def topic(target: str, new_topic: Callable[..., str]) -> str:
    name = new_topic("trimmed")
    produce(target, name, *(b"%d" % number for number in range(MESSAGES)))
    place = ConfluentPartition(name, 0, START)
    admin = AdminClient({"bootstrap.servers": target})
    assert admin.delete_records([place])[place].result(30).low_watermark == START
    return name


def produce(target: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": target})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def confluent(target: str, topic: str, policy: str, write: Callable[[], None]) -> list[bytes]:
    settings: dict[str, Any] = {"bootstrap.servers": target, "group.id": "reset", "enable.auto.commit": False}
    settings["auto.offset.reset"] = "error" if policy == "none" else policy
    consumer = Consumer(settings)
    with closing(consumer):
        consumer.assign([ConfluentPartition(topic, 0, LOST)])
        read: list[bytes] = []
        deadline = time.monotonic() + ARRIVAL_S_MAX
        while (not read or read[-1] != LATE) and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                write()
            elif (error := message.error()) is not None:
                assert error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE), error
                raise OutOfRange
            else:
                read.append(message.value() or b"")
        return read


def kafka_python(target: str, topic: str, policy: str, write: Callable[[], None]) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=target, group_id=None, auto_offset_reset=policy)
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), LOST)
        read: list[bytes] = []
        deadline = time.monotonic() + ARRIVAL_S_MAX
        while (not read or read[-1] != LATE) and time.monotonic() < deadline:
            try:
                found = consumer.poll(timeout_ms=500)
            except OffsetOutOfRangeError:
                raise OutOfRange from None
            read += [record.value for records in found.values() for record in records]
            if not found:
                write()
        return read


def aio(target: str, topic: str, policy: str, write: Callable[[], None]) -> list[bytes]:
    async def main() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=target, auto_offset_reset=policy)
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            consumer.seek(AioPartition(topic, 0), LOST)
            read: list[bytes] = []
            deadline = time.monotonic() + ARRIVAL_S_MAX
            while (not read or read[-1] != LATE) and time.monotonic() < deadline:
                found = await consumer.getmany(timeout_ms=500)
                read += [record.value for records in found.values() for record in records]
                if not found:
                    await asyncio.to_thread(write)
            return read
        except AioOutOfRange:
            raise OutOfRange from None
        finally:
            await consumer.stop()

    return asyncio.run(main())


CLIENTS: dict[str, Read] = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_reader_behind_the_logs_start_goes_where_its_policy_says(
    client: str, policy: str, target: str, topic: str
) -> None:
    written = []

    def write() -> None:
        """One more message, once the reader has found nothing for a while: it stands at the end then."""
        if not written:
            written.append(LATE)
            produce(target, topic, LATE)

    kept = [b"%d" % number for number in range(START, MESSAGES)]
    if policy == "none":
        with pytest.raises(OutOfRange):
            CLIENTS[client](target, topic, policy, write)
    else:
        read = CLIENTS[client](target, topic, policy, write)
        assert read == ([*kept, LATE] if policy == "earliest" else [LATE])


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_javas_consumer_goes_on_though_its_groups_offset_is_lost(
    policy: str, target: str, topic: str, requires_kafka: Distribution
) -> None:
    admin = AdminClient({"bootstrap.servers": target})
    place = ConfluentPartition(topic, 0, LOST)
    (committed,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(topic, [place])]).values()
    committed.result(30)
    printed = requires_kafka.run(
        "console-consumer", "--bootstrap-server", target, "--topic", topic, "--group", topic,
        "--command-property", f"auto.offset.reset={policy}", "--timeout-ms", "6000",
        check=False,
    ).stdout.split()  # fmt: skip
    assert printed == ([str(number) for number in range(START, MESSAGES)] if policy == "earliest" else [])
