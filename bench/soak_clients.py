"""The clients of a long run: they write and read while the broker dies under them, each in a thread of its own.

`IdempotentWriter` is librdkafka's idempotent producer, one for the whole run: every message is stored once and in
order. `RawWriter` has several requests in flight on a raw connection and never retries: what was acknowledged is there,
what was not may be. `FollowingReader` reads partitions on from where it is; `GroupReader` is a member of a group.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from bench.raw import RawConnection, decode_answer, frame, produce_request
from bench.soak_model import Ledger, Topic, message_of, origin_of
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch

IN_FLIGHT_MAX = 5
UNACKNOWLEDGED_MAX = 500
BURST_MAX = 20
PAUSE_S = 0.05
"""Between two bursts of a writer: the run is to be long, not fast."""
END_PATIENCE_S = 60.0
RAW_TIMEOUT_S = 20.0
QUICK_RETRIES = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


class Client(ABC):
    """A thread that works until it is told to end."""

    def __init__(self, name: str, bootstrap: str, ledger: Ledger) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell_to_end(self) -> None:
        self._end.set()

    def join(self) -> None:
        self._thread.join(END_PATIENCE_S)
        if self._thread.is_alive():
            self._ledger.fail(f"{self.name} did not end within {END_PATIENCE_S:g} s")

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as problem:
            self._ledger.fail(f"{self.name}: {type(problem).__name__}: {problem}")

    @abstractmethod
    def _work(self) -> None: ...


class Writer(Client):
    is_idempotent: bool

    def __init__(self, name: str, bootstrap: str, ledger: Ledger, topic: Topic, seed: int) -> None:
        super().__init__(name, bootstrap, ledger)
        self._topic = topic
        self._random = random.Random(seed)
        self._numbers = [itertools.count() for _ in range(topic.partitions)]

    def _next_burst(self) -> tuple[int, list[int]]:
        partition = self._random.randrange(self._topic.partitions)
        return partition, list(itertools.islice(self._numbers[partition], self._random.randint(1, BURST_MAX)))

    def _acknowledge(self, partition: int, number: int, offset: int, time_ms: int) -> None:
        self._ledger.acknowledge(
            self._topic.name, partition, self.name, number, offset, time_ms, is_idempotent=self.is_idempotent
        )


class IdempotentWriter(Writer):
    is_idempotent = True

    def _work(self) -> None:
        codec = self._random.choice(["none", "gzip", "snappy", "lz4", "zstd"])
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.codec": codec,
                "message.timeout.ms": 120_000,
                **QUICK_RETRIES,
            }
        )
        while not self._end.is_set():
            partition, numbers = self._next_burst()
            for number in numbers:
                self._send(producer, partition, number)
            producer.poll(PAUSE_S)
            self._end.wait(PAUSE_S)
            while len(producer) > UNACKNOWLEDGED_MAX and not self._end.is_set():
                producer.poll(0.05)
        left = producer.flush(END_PATIENCE_S / 2)
        if left:
            self._ledger.fail(f"{self.name}: {left} messages were never acknowledged")

    def _send(self, producer: Any, partition: int, number: int) -> None:
        message = message_of(self._topic, self.name, number)
        now_ms = _now_ms()

        def on_delivery(error: KafkaError | None, delivered: Any) -> None:
            if error is None:
                self._acknowledge(partition, number, delivered.offset(), now_ms)
            else:
                self._ledger.fail(f"{self.name}: message {number} was given up: {error}")

        producer.produce(
            self._topic.name,
            message.value,
            message.key,
            partition=partition,
            timestamp=now_ms,
            on_delivery=on_delivery,
        )


class RawWriter(Writer):
    is_idempotent = False

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                with RawConnection(self._bootstrap, timeout_s=RAW_TIMEOUT_S) as connection:
                    self._serve(connection)
            except OSError:  # the broker died: what is in flight may or may not be stored
                self._end.wait(PAUSE_S)

    def _serve(self, connection: RawConnection) -> None:
        in_flight: deque[tuple[int, list[int], int, Any]] = deque()
        while not self._end.is_set() or in_flight:
            while len(in_flight) < IN_FLIGHT_MAX and not self._end.is_set():
                partition, numbers = self._next_burst()
                now_ms = _now_ms()
                request = produce_request(self._topic.name, partition, self._batch(numbers, now_ms), acks=-1)
                connection.send(frame(request))
                in_flight.append((partition, numbers, now_ms, request))
            self._take_answer(connection, *in_flight.popleft())
            self._end.wait(PAUSE_S)

    def _batch(self, numbers: Sequence[int], now_ms: int) -> bytes:
        messages = [message_of(self._topic, self.name, number) for number in numbers]
        records = [Record(i, now_ms, message.key, message.value) for i, message in enumerate(messages)]
        return build_batch(records, codec=self._random.choice(list(Codec)))

    def _take_answer(
        self, connection: RawConnection, partition: int, numbers: Sequence[int], now_ms: int, request: Any
    ) -> None:
        answer = decode_answer(request, connection.receive())
        (outcome,) = answer.responses[0].partition_responses
        if outcome.error_code:  # while it starts or stops; never retried
            return
        for i, number in enumerate(numbers):
            self._acknowledge(partition, number, outcome.base_offset + i, now_ms)


class Reader(Client):
    def __init__(self, name: str, bootstrap: str, ledger: Ledger, topics: Sequence[Topic]) -> None:
        super().__init__(name, bootstrap, ledger)
        self._topics = topics
        self.count = 0

    def _consumer(self, **settings: object) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                **QUICK_RETRIES,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    def _poll(self, consumer: Any) -> None:
        while not self._end.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self.count += 1
                    self._take(message)
        consumer.close()

    def _take(self, message: Any) -> None:
        """A message has come."""


class FollowingReader(Reader):
    """Offsets ascend, and each writer's messages come in order and once."""

    def _work(self) -> None:
        self._next_offset: dict[tuple[str, int], int] = {}
        self._last_number: dict[tuple[str, int, str], int] = {}
        consumer = self._consumer(enable_auto_commit=False)
        consumer.assign(
            [
                TopicPartition(topic.name, partition, OFFSET_BEGINNING)
                for topic in self._topics
                for partition in range(topic.partitions)
            ]
        )
        self._poll(consumer)

    def _take(self, message: Any) -> None:
        place = (message.topic(), message.partition())
        offset, wanted = message.offset(), self._next_offset.get(place, 0)
        if offset < wanted:
            self._ledger.fail(f"{self.name}: {place} gives offset {offset} where {wanted} is due")
        self._next_offset[place] = offset + 1
        origin = origin_of(message.value())
        if origin is not None:
            line = (*place, origin.writer)
            before = self._last_number.get(line, -1)
            if origin.number <= before:
                self._ledger.fail(f"{self.name}: {place} has {origin} after {before}, at {offset}")
            self._last_number[line] = origin.number


class GroupReader(Reader):
    """Subscribes, and lets the group's coordinator keep its offsets."""

    def _work(self) -> None:
        consumer = self._consumer(session_timeout_ms=10_000, auto_commit_interval_ms=1000)
        consumer.subscribe([topic.name for topic in self._topics])
        self._poll(consumer)


def _now_ms() -> int:
    return int(time.time() * 1000)
