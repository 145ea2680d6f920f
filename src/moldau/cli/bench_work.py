"""What `moldau bench` does to a cluster: fill a topic, read it, and time single messages end to end.

Latencies of produce requests are librdkafka's own (from `produce()` to the acknowledgement), so that the Python
around it does not count. Rates do include it: they are what a Python program gets.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.cli.client import Connection
from moldau.cli.errors import CliError
from moldau.cli.measure import Latencies, Throughput
from moldau.cli.offsets import partition_offsets

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PAYLOADS = 64
ALPHABET = b"abcdefghijklmnopqrstuvwxyz     \n"
BATCH_MAX = 1000
WAIT_S = 0.1
STAMP = struct.Struct(">Q")
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Load:
    """What is sent, and how."""

    topic: str
    messages: int
    size: int
    acks: str = "all"
    codec: str = "none"
    linger_ms: float = 5.0
    rate: float = 0.0  # messages per second; 0 is as fast as it goes

    def payloads(self) -> list[bytes]:
        """Text that is the same in every run and compresses like text."""
        chance = random.Random(self.size)
        return [bytes(chance.choices(ALPHABET, k=self.size)) for _ in range(PAYLOADS)]


@dataclass
class Result:
    kind: str
    load: Load
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    throughput: Throughput = field(default_factory=Throughput)
    latencies: dict[str, Latencies] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "topic": self.load.topic,
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "messages_per_s": round(self.messages / self.seconds, 1) if self.seconds else None,
            "mb_per_s": round(self.bytes / 1e6 / self.seconds, 3) if self.seconds else None,
            "latency_ms": {name: latencies.as_ms() for name, latencies in self.latencies.items()},
        }


@contextlib.contextmanager
def bench_topic(connection: Connection, name: str | None, partitions: int, *, keep: bool) -> Iterator[str]:
    """The user's topic, or one that is made for the run and deleted after it."""
    if name is not None:
        connection.topic(name)
        yield name
        return
    from confluent_kafka.admin import NewTopic

    made = f"moldau-bench-{os.urandom(4).hex()}"
    timeout_s = connection.target.timeout_s
    new = NewTopic(made, num_partitions=partitions, replication_factor=-1)
    connection.result(connection.admin.create_topics([new], request_timeout=timeout_s)[made])
    try:
        yield made
    finally:
        if not keep:
            connection.result(connection.admin.delete_topics([made], request_timeout=timeout_s)[made])


class Pace:
    """Holds a loop back to so many turns a second; it catches up after a delay rather than drifting."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._next = time.perf_counter()

    def wait(self) -> None:
        if self._interval_s:
            self._next += self._interval_s
            delay_s = self._next - time.perf_counter()
            if delay_s > 0:
                time.sleep(delay_s)


def produce_all(connection: Connection, load: Load, progress: Progress) -> Result:
    """Send `load.messages`, and wait for the last acknowledgement."""
    producer = connection.producer(
        acks=load.acks,
        compression_type=load.codec,
        linger_ms=load.linger_ms,
        queue_buffering_max_messages=100_000,
        message_max_bytes=1_000_000_000,
        batch_size=1_000_000,
    )
    result = Result("produce", load, latencies={"acknowledged": Latencies()})
    add_latency = result.latencies["acknowledged"].add
    failures: list[KafkaError] = []
    start = time.perf_counter()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
            return
        result.messages += 1
        add_latency(message.latency())
        result.throughput.add(time.perf_counter() - start, load.size)

    payloads = load.payloads()
    pace = Pace(load.rate)
    for number in range(load.messages):
        pace.wait()
        while not failures:
            try:
                producer.produce(load.topic, payloads[number % PAYLOADS], on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(WAIT_S)
        if number % 100 == 0 or load.rate:
            producer.poll(0)
            progress(result.messages)
        if failures:
            break
    while len(producer) and not failures:
        producer.poll(WAIT_S)
        progress(result.messages)
    if failures:
        producer.purge()
        raise connection.explain(failures[0], subject=load.topic)
    result.seconds = time.perf_counter() - start
    result.bytes = result.messages * load.size
    return result


def consume_all(connection: Connection, load: Load, progress: Progress) -> Result:
    """Read up to `load.messages` from the beginning of the topic."""
    from confluent_kafka import KafkaError, TopicPartition

    bounds = partition_offsets(connection, load.topic, sorted(connection.topic(load.topic).partitions))
    wanted = min(load.messages, sum(bound.next - bound.first for bound in bounds.values()))
    consumer = connection.consumer(enable_partition_eof=True)
    result = Result("consume", load)
    start = time.perf_counter()
    last = start
    consumer.assign(
        [TopicPartition(load.topic, partition, bound.first) for partition, bound in bounds.items()]
    )
    unread = set(bounds)
    try:
        while unread and result.messages < wanted:
            batch = consumer.consume(BATCH_MAX, 0) or consumer.consume(1, WAIT_S)
            now = time.perf_counter()
            size = 0
            for message in batch:
                error = message.error()
                if error is None:
                    result.messages += 1
                    size += len(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise connection.explain(error, subject=load.topic)
            if batch:
                last = now
                result.bytes += size
                result.throughput.add(now - start, size)
                progress(result.messages)
            elif now - last > connection.target.timeout_s:
                raise connection.silent()
        result.seconds = last - start
    finally:
        consumer.close()
    return result


def measure_latency(connection: Connection, load: Load, progress: Progress) -> Result:
    """Time each message from `produce()` to its acknowledgement and to a consumer that waits for it."""
    result = Result("latency", load, latencies={"acknowledged": Latencies(), "end_to_end": Latencies()})
    reader = EchoReader(connection, load, result.latencies["end_to_end"])
    producer = connection.producer(acks=load.acks, compression_type=load.codec, linger_ms=0)
    failures: list[KafkaError] = []
    acknowledged = result.latencies["acknowledged"]

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged.add(message.latency())

    filler = load.payloads()[0][: max(0, load.size - STAMP.size)]
    with reader:
        producer.produce(load.topic, b"")  # the first message pays for connections; it is not measured
        producer.flush(connection.target.timeout_s)
        reader.wait_until_ready()
        start = time.perf_counter()
        pace = Pace(load.rate)
        for number in range(load.messages):
            pace.wait()
            stamp = STAMP.pack(time.perf_counter_ns())
            producer.produce(load.topic, stamp + filler, on_delivery=on_delivery)
            if load.rate:
                producer.poll(0)
            else:
                producer.flush()  # one by one
            if failures:
                raise connection.explain(failures[0], subject=load.topic)
            progress(number + 1)
        producer.flush()
        reader.wait_for(load.messages)
    result.seconds = time.perf_counter() - start
    result.messages = acknowledged.count
    result.bytes = result.messages * load.size
    return result


class EchoReader:
    """A consumer on a thread that reads the stamps of `measure_latency` as soon as they arrive."""

    def __init__(self, connection: Connection, load: Load, latencies: Latencies) -> None:
        from confluent_kafka import TopicPartition

        self._connection = connection
        self._latencies = latencies
        self._stopping = False
        self._ready = threading.Event()
        self._consumer = connection.consumer(fetch_wait_max_ms=500, fetch_min_bytes=1)
        bounds = partition_offsets(connection, load.topic, sorted(connection.topic(load.topic).partitions))
        self._consumer.assign([TopicPartition(load.topic, p, bound.next) for p, bound in bounds.items()])
        self._thread = threading.Thread(target=self._run, name="bench-reader", daemon=True)

    def _run(self) -> None:
        while not self._stopping:
            message = self._consumer.poll(WAIT_S)
            if message is None or message.error() is not None:
                continue
            value = message.value() or b""
            if len(value) < STAMP.size:
                self._ready.set()
            else:
                self._latencies.add((time.perf_counter_ns() - STAMP.unpack_from(value)[0]) / 1e9)

    def wait_until_ready(self) -> None:
        if not self._ready.wait(self._connection.target.timeout_s):
            raise self._connection.silent()

    def wait_for(self, messages: int) -> None:
        deadline = time.monotonic() + self._connection.target.timeout_s
        while self._latencies.count < messages:
            if time.monotonic() > deadline:
                missing = messages - self._latencies.count
                raise CliError(f"{missing} of {messages} messages did not come back in time.")
            time.sleep(0.001)

    def __enter__(self) -> EchoReader:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping = True
        self._thread.join()
        self._consumer.close()
