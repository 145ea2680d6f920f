"""Consumers that stay: many partitions in one fetch, new messages over time, partitions that come and go.

Long-lived consumers use what the short reads of the matrix do not: incremental fetch sessions and long polls.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition

from interop.clients import Message
from interop.clients.confluent import Confluent

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-readers")]

PARTITIONS = 12
ROUNDS = 8
ARRIVAL_S_MAX = 20

Read = dict[int, list[tuple[int, bytes]]]
Poll = Callable[[Read], None]
Assign = Callable[[list[int]], None]


@contextmanager
def confluent_reader(target: str, topic: str) -> Iterator[tuple[Assign, Poll]]:
    settings: dict[str, Any] = {"bootstrap.servers": target, "group.id": "by-hand", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    places: dict[int, int] = {}

    def assign(partitions: list[int]) -> None:
        consumer.assign([ConfluentPartition(topic, p, places.get(p, 0)) for p in partitions])

    def poll(read: Read) -> None:
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            read[message.partition()].append((message.offset(), message.value()))
            places[message.partition()] = message.offset() + 1

    with closing(consumer):
        yield assign, poll


@contextmanager
def kafka_python_reader(target: str, topic: str) -> Iterator[tuple[Assign, Poll]]:
    consumer = KafkaConsumer(bootstrap_servers=target, group_id=None, auto_offset_reset="none")
    places: dict[int, int] = {}

    def assign(partitions: list[int]) -> None:
        consumer.assign([TopicPartition(topic, p) for p in partitions])
        for partition in partitions:
            consumer.seek(TopicPartition(topic, partition), places.get(partition, 0))

    def poll(read: Read) -> None:
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                read[record.partition].append((record.offset, record.value))
                places[record.partition] = record.offset + 1

    with closing(consumer):
        yield assign, poll


READERS = {"confluent-kafka": confluent_reader, "kafka-python": kafka_python_reader}


@pytest.mark.parametrize("reader", READERS)
def test_every_message_of_many_partitions_arrives_once_and_in_order(
    reader: str, target: str, new_topic: Callable[..., str]
) -> None:
    """Each round writes to some of the partitions and reads with some left out, which catch up when they are back."""
    topic, chance, writer = new_topic("long", partitions=PARTITIONS), random.Random(3), Confluent(target)
    written: Read = defaultdict(list)
    read: Read = defaultdict(list)
    with READERS[reader](target, topic) as (assign, poll):
        for number in range(ROUNDS):
            for partition in chance.sample(range(PARTITIONS), 4):
                values = [f"{number}:{partition}:{i}".encode() for i in range(chance.randint(1, 5))]
                writer.produce(topic, [Message(value) for value in values], partition=partition)
                written[partition] += enumerate(values, len(written[partition]))
            last = number == ROUNDS - 1
            assigned = sorted(range(PARTITIONS) if last else chance.sample(range(PARTITIONS), 8))
            assign(assigned)
            poll_until(poll, read, lambda a=assigned: all(len(read[p]) >= len(written[p]) for p in a))
    assert dict(read) == dict(written) | {p: [] for p in range(PARTITIONS) if p not in written}


@pytest.mark.parametrize("reader", READERS)
def test_a_message_wakes_a_reader_that_waits(reader: str, target: str, new_topic: Callable[..., str]) -> None:
    topic, writer = new_topic("woken"), Confluent(target)
    read: Read = defaultdict(list)
    with READERS[reader](target, topic) as (assign, poll):
        assign([0])
        poll(read)
        for number in range(5):
            writer.produce(topic, [Message(str(number).encode())])
            poll_until(poll, read, lambda n=number: len(read[0]) > n)
    assert read[0] == [(n, str(n).encode()) for n in range(5)]


def poll_until(poll: Poll, read: Read, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ARRIVAL_S_MAX
    while not done():
        assert time.monotonic() < deadline, "messages did not arrive"
        poll(read)
