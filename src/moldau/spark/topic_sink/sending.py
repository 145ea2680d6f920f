"""Rows into a producer's queue, and out of it.

The queue is bounded (`queue.buffering.max.*`): where it is full, a task waits until records have left it, at most
`max.block.ms` without any leaving. Nothing is said of records that were delivered; the first that was not is kept, and
the task fails with it. When `finish` returns, every record of the task has been acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

if TYPE_CHECKING:
    from moldau.spark.topic_sink.columns import Rows

POLL_S = 0.1
FLUSH_SLACK_S = 30.0
"""Beyond a record's own time-out, which ends every wait; this one is for a client that hangs."""
ROWS_PER_POLL = 2000


class NotDelivered(Exception):
    """A record that the brokers did not take. `error` is confluent-kafka's, None where the client hangs."""

    def __init__(self, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.error = error


class Reports:
    """What a producer's callbacks say. It knows no producer, so that one is freed with its last user."""

    def __init__(self) -> None:
        self.failure: NotDelivered | None = None
        self.fatal: Any = None
        self.refusal = ""
        """What a broker has said of the login or the certificate."""

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self.failure is None:
            place = f"{message.topic()}[{message.partition()}]"
            reason = f"{error.str()} {self.refusal}".rstrip()
            self.failure = NotDelivered(f"a record for {place} was not delivered: {reason}", error)

    def on_error(self, error: Any) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.refusal = f"({error.str()})"
        if error.fatal() and self.fatal is None:
            self.fatal = error


class Outlet:
    """A producer of confluent-kafka's, for one task at a time."""

    def __init__(self, config: dict[str, str], max_block_ms: int) -> None:
        self._reports = Reports()
        self._max_block_s = max_block_ms / 1000
        timeout_ms = config.get("delivery.timeout.ms") or config.get("message.timeout.ms") or "300000"
        self._flush_s = int(timeout_ms) / 1000 + FLUSH_SLACK_S
        self.producer = Producer(
            {
                "log_level": "3",  # what matters reaches the task as an exception
                **config,
                "on_delivery": self._reports.on_delivery,
                "delivery.report.only.error": True,
                "error_cb": self._reports.on_error,
            }
        )

    @property
    def fatal(self) -> Any:
        """The error after which the producer is of no use, if there is one."""
        return self._reports.fatal

    def send(self, rows: Rows) -> None:
        """Queue them. NotDelivered where one of these, or one from before, cannot be delivered."""
        produce = self.producer.produce
        until_poll = ROWS_PER_POLL
        for topic, value, key, partition, headers in rows:
            try:
                produce(topic, value, key, partition, headers=headers)
            except BufferError:
                self._produce_when_there_is_room(topic, value, key, partition, headers)
            except KafkaException as error:
                raise self._refused(topic, error) from None
            until_poll -= 1
            if not until_poll:
                self._wait(self.producer.poll, 0)
                until_poll = ROWS_PER_POLL

    def _produce_when_there_is_room(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: Any
    ) -> None:
        waiting, since_s = len(self.producer), time.monotonic()
        while True:
            self._wait(self.producer.poll, POLL_S)
            try:
                self.producer.produce(topic, value, key, partition, headers=headers)
                return
            except KafkaException as error:
                raise self._refused(topic, error) from None
            except BufferError:
                if len(self.producer) != waiting:
                    waiting, since_s = len(self.producer), time.monotonic()
                elif time.monotonic() - since_s > self._max_block_s:
                    raise NotDelivered(
                        f"the producer's queue is full, and nothing left it in {self._max_block_s:g} s (max.block.ms)"
                    ) from None

    def _refused(self, topic: str, error: KafkaException) -> NotDelivered:
        reason = self.fatal or error.args[0]
        return NotDelivered(f"a record for topic {topic} was refused: {reason.str()}", reason)

    def finish(self) -> None:
        """Wait until all have been delivered."""
        deadline_s = time.monotonic() + self._flush_s
        while len(self.producer):
            self._wait(self.producer.flush, POLL_S)
            if time.monotonic() > deadline_s:
                raise NotDelivered(f"{len(self.producer)} records have no answer after {self._flush_s:g} s")
        self._wait(self.producer.poll, 0)

    def _wait(self, wait: Callable[[float], int], timeout_s: float) -> None:
        """Let the callbacks run. NotDelivered, if a record is known not to be."""
        try:
            wait(timeout_s)
        except KafkaException as error:  # a fatal one is raised wherever the client is asked next
            raise failed(error.args[0]) from None
        if self._reports.failure is not None:
            raise self._reports.failure
        if self.fatal is not None:
            raise failed(self.fatal)

    def close(self) -> None:
        """Drop what is queued; a record that is on its way may arrive."""
        try:
            self.producer.purge()
            self.producer.flush(0)
        except KafkaException:  # it has failed: that is why it is closed
            pass


def failed(reason: Any) -> NotDelivered:
    return NotDelivered(f"the producer has failed: {reason.str()}", reason)
