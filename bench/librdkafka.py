"""Workloads of confluent-kafka (librdkafka): throughput, latency of single and paced messages, end to end.

Consumers assign partitions by hand. librdkafka's own defaults would stall a fast consumer for a second whenever its
queue is full (`fetch.queue.backoff.ms`), so that one is set to 5 ms for both brokers.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.measure import MB, Meter, Reading, WorkNotDone, latency_readings
from bench.server import Server
from bench.topics import fresh_topic

DELIVERY_TIMEOUT_S = 120
CONSUME_CHUNK = 10_000
END_TO_END_WARM_UP = 100


class Addressed(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


_STAMP = struct.Struct(">q")


def producer(server: Addressed, **settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def consumer(server: Addressed, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "assigned-by-hand",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 1_000_000,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def throughput(server: Server, size: int, partitions: int, total_bytes: int) -> Iterator[Reading]:
    """Write and then read a topic as fast as the client can."""
    count = total_bytes // size
    what = f"{size} B, {partitions} partition" + ("s" if partitions > 1 else "")
    with fresh_topic(server, partitions) as topic:
        with Meter(server) as meter:
            produce_all(producer(server), topic, partitions, count, os.urandom(size))
        yield Reading(f"produce, {what}", total_bytes / MB / meter.wall_s, "MB/s", more_is_better=True)
        yield Reading(f"broker CPU to produce, {what}", meter.cpu_s * 1000 / (total_bytes / MB), "ms/MB")
        with Meter(server) as meter:
            consume_all(consumer(server), topic, partitions, count)
        yield Reading(f"consume, {what}", total_bytes / MB / meter.wall_s, "MB/s", more_is_better=True)
        yield Reading(f"broker CPU to consume, {what}", meter.cpu_s * 1000 / (total_bytes / MB), "ms/MB")


def produce_all(client: Producer, topic: str, partitions: int, count: int, value: bytes) -> None:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        while True:
            try:
                client.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
                break
            except BufferError:
                client.poll(0.05)
        if not number & 1023:
            client.poll(0)
    left = client.flush(DELIVERY_TIMEOUT_S)
    if left or failures:
        raise WorkNotDone(f"{left} messages were not acknowledged, {len(failures)} refused {failures[:1]}")


def consume_all(client: Consumer, topic: str, partitions: int, count: int) -> None:
    client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    received = 0
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while received < count:
        messages = client.consume(min(CONSUME_CHUNK, count - received), timeout=0.5)
        received += sum(1 for message in messages if message.error() is None)
        if time.monotonic() > deadline:
            raise WorkNotDone(f"{received} of {count} messages came back in time")
    client.close()


def synchronous_latency(server: Server, count: int, size: int) -> Iterator[Reading]:
    """One message at a time: the next is sent when the one before is acknowledged."""
    value = os.urandom(size)
    client = producer(server, linger_ms=0)
    with fresh_topic(server) as topic:
        produce_all(client, topic, 1, 50, value)
        with Meter(server) as meter:
            latencies = synchronous_times(client, topic, count, value)
    yield from latency_readings("synchronous produce", latencies)
    yield Reading("broker CPU per synchronous message", meter.cpu_s * 1e6 / count, "us")


def synchronous_times(client: Producer, topic: str, count: int, value: bytes) -> list[float]:
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        client.produce(topic, value, partition=0)
        if client.flush(DELIVERY_TIMEOUT_S):
            raise WorkNotDone("a message was not acknowledged")
        latencies.append(time.perf_counter() - started)
    return latencies


def paced_latency(server: Server, rate: int, duration_s: float, size: int) -> Iterator[Reading]:
    """A steady stream: the time from `produce` to the acknowledgement in the client's hands."""
    value = os.urandom(size)
    client = producer(server, linger_ms=0)
    with fresh_topic(server) as topic:
        produce_all(client, topic, 1, 50, value)
        latencies = paced_times(client, topic, rate, int(rate * duration_s), value)
    yield from latency_readings(f"paced produce, {rate}/s", latencies)


def paced_times(client: Producer, topic: str, rate: int, count: int, value: bytes) -> list[float]:
    latencies: list[float] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            latencies.append(message.latency())

    with _polled(client):
        for _ in paced(rate, count):
            client.produce(topic, value, partition=0, on_delivery=on_delivery)
        client.flush(DELIVERY_TIMEOUT_S)
    if len(latencies) != count:
        raise WorkNotDone(f"{count - len(latencies)} messages were not acknowledged")
    return latencies


@contextlib.contextmanager
def _polled(client: Producer) -> Iterator[None]:
    """Take acknowledgements as they come. Polled between two sends, they would all seem as late as the next send."""
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            client.poll(0.1)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def end_to_end_latency(server: Server, rate: int, duration_s: float, size: int) -> Iterator[Reading]:
    """From `produce` in one client to the message in the hands of another, on one machine's clock."""
    padding, count = bytes(size - _STAMP.size), int(rate * duration_s) + END_TO_END_WARM_UP
    latencies: list[float] = []

    def read(reader: Consumer, topic: str) -> None:
        reader.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + duration_s + DELIVERY_TIMEOUT_S
        while len(latencies) < count and time.monotonic() < deadline:
            message = reader.poll(1)
            if message is not None and message.error() is None:
                sent_ns = _STAMP.unpack_from(message.value())[0]
                latencies.append((time.perf_counter_ns() - sent_ns) / 1e9)
        reader.close()

    with fresh_topic(server) as topic:
        thread = threading.Thread(target=read, args=(consumer(server), topic), daemon=True)
        thread.start()
        client = producer(server, linger_ms=0)
        for _ in paced(rate, count):
            client.produce(topic, _STAMP.pack(time.perf_counter_ns()) + padding, partition=0)
            client.poll(0)
        client.flush(DELIVERY_TIMEOUT_S)
        thread.join(DELIVERY_TIMEOUT_S)
    if len(latencies) != count:
        raise WorkNotDone(f"{count - len(latencies)} messages did not arrive")
    yield from latency_readings(f"end to end, {rate}/s", latencies[END_TO_END_WARM_UP:])


def paced(rate: int, count: int) -> Iterator[int]:
    """Numbers at a steady rate; a late one does not push back those after it."""
    started = time.perf_counter()
    for number in range(count):
        delay = started + number / rate - time.perf_counter()
        if delay > 0:
            time.sleep(delay)
        yield number
