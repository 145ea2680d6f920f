"""A client that has nothing to do with the trouble around it: it writes and reads all the time and takes notes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

STEP_S_MAX = 10.0


class Canary:
    """`problems` stays empty while every message comes back as it was sent, in order, and nothing disconnects."""

    def __init__(
        self, bootstrap_servers: str, topic: str, properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties`: of the client, where it has to say who it is."""
        self._properties = dict(properties or {})
        self.problems: list[str] = []
        self.steps = 0
        self.slowest_step_s = 0.0
        self._bootstrap = bootstrap_servers
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="canary", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join(STEP_S_MAX * 2)
        if self._thread.is_alive():
            self.problems.append("the canary hangs")

    def _note(self, error: object) -> None:
        self.problems.append(str(error))

    def _guarded(self) -> None:
        try:
            self._sing()
        except Exception as problem:
            self._note(repr(problem))

    def _sing(self) -> None:
        base = {
            "bootstrap.servers": self._bootstrap,
            "error_cb": self._note,
            "log_level": 0,
            **self._properties,
        }
        producer = Producer({**base, "enable.idempotence": True, "linger.ms": 0})
        consumer = Consumer(
            {
                **base,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
                "check.crcs": True,
            }
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._end.is_set():
            self._step(producer, consumer)
        consumer.close()

    def _step(self, producer: Producer, consumer: Consumer) -> None:
        value = f"{self.steps}:".encode() + bytes([self.steps % 251]) * 500
        started = time.monotonic()
        producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
        if producer.flush(STEP_S_MAX):
            self._note("a message was not acknowledged in time")
        message = consumer.poll(STEP_S_MAX)
        if message is None or message.error():
            self._note(f"no message came back: {message and message.error()}")
        elif (message.offset(), message.value()) != (self.steps, value):
            self._note(f"expected message {self.steps}, got {message.offset()}: {message.value()[:30]!r}")
        self.slowest_step_s = max(self.slowest_step_s, time.monotonic() - started)
        self.steps += 1
        time.sleep(0.01)

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._note(error)
