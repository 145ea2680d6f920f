"""Producers that write numbered messages and remember which were acknowledged, for brokers that die under them.

`IdempotentWriter` is librdkafka's idempotent producer: one producer for the whole test, which retries over
restarts, so that every message must be stored once and in order. `PipelinedWriter` has five requests in flight
on a raw connection and never retries: what was acknowledged must be there, once; what was not, may be.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer

from bench.raw import RawConnection, decode_answer, frame, produce_request
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch

IN_FLIGHT_MAX = 5
UNACKNOWLEDGED_MAX = 500
PAUSE_S = 0.005
"""Between two requests: the tests read all that was written, with Python's speed."""


@dataclass(frozen=True)
class Acknowledged:
    partition: int
    value: bytes
    offset: int
    """-1 where the broker knew a retry for a duplicate without its place."""


def value_of(writer: str, partition: int, number: int) -> bytes:
    head = f"{writer}:{partition}:{number:06d}:"
    return head.encode() + bytes([number % 251]) * (number * 7 % 300)


class Writer(ABC):
    """A thread that writes until it is told to end."""

    is_idempotent: bool

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: list[int], seed: int) -> None:
        self.name = name
        self.problem: BaseException | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._numbers = {partition: itertools.count() for partition in partitions}
        self._acknowledged: list[Acknowledged] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        self._end.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} did not end within {timeout_s:g} s"
        if self.problem is not None:
            raise self.problem

    def acknowledged(self) -> list[Acknowledged]:
        with self._lock:
            return list(self._acknowledged)

    def _guarded(self) -> None:
        try:
            self._write()
        except BaseException as problem:
            self.problem = problem

    def _next_values(self, count: int) -> tuple[int, list[bytes]]:
        partition = self._random.choice(self._partitions)
        numbers = itertools.islice(self._numbers[partition], count)
        return partition, [value_of(self.name, partition, number) for number in numbers]

    @abstractmethod
    def _write(self) -> None: ...


class IdempotentWriter(Writer):
    is_idempotent = True

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: list[int],
        seed: int,
        codec: Codec = Codec.NONE,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__(name, bootstrap, topic, partitions, seed)
        self._codec = codec
        self._pause_s = pause_s

    def _write(self) -> None:
        producer = Producer(
            {
                "compression.type": self._codec.name.lower(),
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        while not self._end.is_set():
            partition, values = self._next_values(self._random.randint(1, 20))
            for value in values:
                producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            producer.poll(0)
            self._end.wait(self._pause_s)
            while len(producer) > UNACKNOWLEDGED_MAX and not self._end.is_set():
                producer.poll(0.05)
        left = producer.flush(30)
        assert left == 0, f"{self.name}: {left} messages were never acknowledged"

    def _on_delivery(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.problem = AssertionError(f"{self.name}: a retried message was given up: {error}")
            return
        with self._lock:
            place = message.offset()  # type: ignore[attr-defined]
            self._acknowledged.append(Acknowledged(message.partition(), message.value(), place))  # type: ignore[attr-defined]


class PipelinedWriter(Writer):
    is_idempotent = False

    def _write(self) -> None:
        while not self._end.is_set():
            try:
                with RawConnection(self._bootstrap, timeout_s=20) as connection:
                    self._serve(connection)
            except OSError:  # the broker died: what is in flight may or may not be stored
                time.sleep(0.02)

    def _serve(self, connection: RawConnection) -> None:
        in_flight: deque[tuple[int, list[bytes], object]] = deque()
        while not self._end.is_set() or in_flight:
            while len(in_flight) < IN_FLIGHT_MAX and not self._end.is_set():
                partition, values = self._next_values(self._random.randint(1, 5))
                now_ms = int(time.time() * 1000)
                batch = build_batch([Record(i, now_ms, None, value) for i, value in enumerate(values)])
                request = produce_request(self._topic, partition, batch, acks=-1)
                connection.send(frame(request))
                in_flight.append((partition, values, request))
            self._take_answer(connection, *in_flight.popleft())
            time.sleep(PAUSE_S)

    def _take_answer(
        self, connection: RawConnection, partition: int, values: list[bytes], request: object
    ) -> None:
        answer = decode_answer(request, connection.receive())
        (outcome,) = answer.responses[0].partition_responses
        if outcome.error_code:  # while it starts or stops; never retried
            return
        with self._lock:
            self._acknowledged += [
                Acknowledged(partition, value, outcome.base_offset + i) for i, value in enumerate(values)
            ]
