"""Rows into a producer's queue, and out of it.

The queue is bounded (`queue.buffering.max.*`): where it is full, a task waits until records have left it, at most
`max.block.ms` without any leaving. Nothing is said of records that were delivered; the first that was not is kept, and
the task fails with it. When `finish` returns, every record of the task has been acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from moldau.spark.topic_sink.heard import Heard
from moldau.spark.topic_sink.librdkafka import Producer

if TYPE_CHECKING:
    from moldau.spark.topic_sink.rows import Rows

POLL_S = 0.1
FLUSH_SLACK_S = 30.0
"""Beyond a record's own time-out, which ends every wait; this one is for a client that hangs."""
ROOM_POLL_S = 0.005
"""How long a full queue is left to drain: nothing tells that there is room."""


class NotDelivered(Exception):
    """A record that the brokers did not take. `error` is confluent-kafka's, None where the client hangs."""

    def __init__(self, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.error = error


class Reports:
    """What a producer's callbacks say. It knows no producer, so that one is freed with its last user."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard
        self.failure: NotDelivered | None = None
        self.fatal: Any = None

    def on_undelivered(self, error: Any, topic: str, partition: int) -> None:
        if self.failure is None:
            reason = self.heard.explain(error.str())
            self.failure = NotDelivered(
                f"a record for {topic}[{partition}] was not delivered: {reason}", error
            )

    def on_error(self, error: Any) -> None:
        self.heard(error)
        if error.fatal() and self.fatal is None:
            self.fatal = error


class Outlet:
    """A producer of librdkafka's, for one task at a time."""

    def __init__(self, config: dict[str, str], max_block_ms: int) -> None:
        self.heard = Heard.by(config)
        self._reports = Reports(self.heard)
        self._has_delivered = False
        """The brokers know us: a refusal may be a hand-shake with one that has just ended."""
        self._max_block_s = max_block_ms / 1000
        timeout_ms = config.get("delivery.timeout.ms") or config.get("message.timeout.ms") or "300000"
        self._flush_s = int(timeout_ms) / 1000 + FLUSH_SLACK_S
        self.producer = Producer(
            {"log_level": "3", **config},  # what matters reaches the task as an exception
            self._reports.on_error,
            self._reports.on_undelivered,
        )

    @property
    def fatal(self) -> Any:
        """The error after which the producer is of no use, if there is one."""
        return self._reports.fatal

    @property
    def is_refused(self) -> bool:
        """The brokers do not let us in, and never have."""
        return self.heard.refusal is not None and not self._has_delivered

    def send(self, rows: Rows) -> None:
        """Queue them. NotDelivered where one of these, or one from before, cannot be delivered."""
        for topic, numbers in rows.by_topic():
            if rows.headers is None:
                self._queue_messages(topic, rows.messages(numbers))
            else:
                self._queue_each(topic, *rows.arguments(numbers))
        self._wait(self.producer.poll, 0)

    def _queue_messages(self, topic: str, messages: Any) -> None:
        def queue(start: int) -> int:
            return self.producer.produce(topic, messages[start:])

        self._queue_when_there_is_room(topic, queue, len(messages))

    def _queue_each(self, topic: str, arguments: Any, starts: Any) -> None:
        def queue(start: int) -> int:
            return self.producer.produce_each(topic, arguments, starts[start:])

        self._queue_when_there_is_room(topic, queue, len(starts) - 1)

    def _queue_when_there_is_room(self, topic: str, queue: Callable[[int], int], count: int) -> None:
        """`queue` takes rows from one on, and says how many the queue has taken."""
        queued, waiting, since_s = 0, -1, time.monotonic()
        while True:
            try:
                queued += queue(queued)
            except KafkaException as error:
                raise self._refused(topic, error) from None
            if queued == count:
                return
            if len(self.producer) != waiting:
                waiting, since_s = len(self.producer), time.monotonic()
            elif time.monotonic() - since_s > self._max_block_s:
                raise NotDelivered(
                    self.heard.explain(
                        f"the producer's queue is full, and nothing left it in {self._max_block_s:g} s (max.block.ms)"
                    )
                )
            self._wait(self.producer.poll, ROOM_POLL_S)

    def _refused(self, topic: str, error: KafkaException) -> NotDelivered:
        reason = self.fatal or error.args[0]
        return NotDelivered(f"a record for topic {topic} was refused: {reason.str()}", reason)

    def finish(self) -> None:
        """Wait until all have been delivered."""
        deadline_s = time.monotonic() + self._flush_s
        while len(self.producer):
            self._wait(self.producer.flush, POLL_S)
            if time.monotonic() > deadline_s:
                left = f"{len(self.producer)} records have no answer after {self._flush_s:g} s"
                raise NotDelivered(self.heard.explain(left))
        self._wait(self.producer.poll, 0)
        self._has_delivered = True

    def _wait(self, wait: Callable[[float], None], timeout_s: float) -> None:
        """Let the callbacks run. NotDelivered, if a record is known not to be."""
        wait(timeout_s)
        if self._reports.failure is not None:
            raise self._reports.failure
        if self.fatal is not None:
            raise failed(self.fatal)
        if self.is_refused:
            raise NotDelivered(f"records were not delivered: {self.heard.refusal}")

    def close(self) -> None:
        """Drop what is queued; a record that is on its way may arrive."""
        self.producer.purge()
        self.producer.flush(0)


def failed(reason: Any) -> NotDelivered:
    return NotDelivered(f"the producer has failed: {reason.str()}", reason)
