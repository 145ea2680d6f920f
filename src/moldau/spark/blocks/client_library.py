"""A range of offsets through confluent-kafka's consumer: for the security that only librdkafka knows.

The same rows as by the reader's own Fetch, and the same errors; several times slower, since each record is a Python
object. A range ends at the first record behind it, or where the partition ends behind it: librdkafka passes over
markers and gaps without a word. Topic ids, which a consumer does not see, are compared before the range is read and
after it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa

from moldau.spark.blocks.columns import CREATE_TIME, LOG_APPEND_TIME, TYPES, Columns
from moldau.spark.blocks.errors import DataLoss, ReadFailed, SecurityFailed, TopicRecreated, what_is_gone
from moldau.spark.blocks.fetching import UNKNOWN_TOPIC_S
from moldau.spark.blocks.settings import ReadSettings, Split

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

logger = logging.getLogger("moldau.spark")

ROWS: Final = 10_000
POLL_S: Final = 1.0
ANSWER_S: Final = 30.0
GROUP: Final = "moldau-spark"
"""librdkafka insists on a name; nothing is committed, and no group is joined."""
MICROS_MAX: Final = 2**63 - 1


class LibraryReader:
    """Reads one split once."""

    def __init__(self, settings: ReadSettings, split: Split) -> None:
        self._settings = settings
        self._split = split
        self._position = split.first_offset
        self._moved_s = time.monotonic()
        self._refusal: str | None = None
        self._complaint = "no broker answers"

    def columns(self, wanted: Collection[str]) -> Iterator[Columns]:
        from confluent_kafka import Consumer

        if self._split.first_offset >= self._split.next_offset and not self._split.to_latest:
            return
        consumer = Consumer(self._config())
        try:
            self._check_topic()
            if self._split.to_latest:
                self._bind(consumer)
            self._assign(consumer)
            while self._position < self._split.next_offset:
                rows = self._take(consumer, consumer.consume(ROWS, POLL_S))
                if rows:
                    yield _columns(rows, wanted)
            self._check_topic()
        finally:
            consumer.close()

    def _config(self) -> dict[str, Any]:
        return {
            "group.id": GROUP,
            "check.crcs": "true",
            "fetch.queue.backoff.ms": "10",
            "log_level": "0",
            **self._settings.client_config,
            "bootstrap.servers": self._settings.bootstrap_servers,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if self._settings.read_committed else "read_uncommitted",
            "error_cb": self._on_error,
        }

    def _on_error(self, error: KafkaError) -> None:
        self._complaint = error.str()
        if error.name() in ("_AUTHENTICATION", "_SSL"):
            self._refusal = error.str()

    def _bind(self, consumer: Consumer) -> None:
        """The range ends where the log ends now, or its last stable offset is: librdkafka knows the isolation level."""
        from confluent_kafka import KafkaException

        try:
            _, latest = consumer.get_watermark_offsets(self._place(), ANSWER_S)
        except KafkaException as reason:
            consumer.poll(0)
            refusal = SecurityFailed if self._refusal else ReadFailed
            raise refusal(self._sentence(self._refusal or reason.args[0].str())) from None
        self._split = replace(self._split, next_offset=max(latest, self._split.next_offset), to_latest=False)

    def _place(self) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._split.topic, self._split.partition)

    def _assign(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self._split.topic, self._split.partition, self._position)])

    def _take(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """The records of the range among these, and the position after them."""
        rows = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._take_error(consumer, message, error)
            elif message.offset() >= self._split.next_offset:
                self._move_to(self._split.next_offset)
                break
            elif message.offset() >= self._position:
                rows.append(message)
                self._move_to(message.offset() + 1)
        if self._refusal is not None and not rows:
            raise SecurityFailed(self._sentence(self._refusal))
        if (time.monotonic() - self._moved_s) * 1000 > self._settings.timeout_ms:
            timeout_ms = self._settings.timeout_ms
            raise ReadFailed(
                self._sentence(f"no progress at {self._position} for {timeout_ms} ms: {self._complaint}")
            )
        return rows

    def _take_error(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        name = error.name()
        if name == "_PARTITION_EOF":
            self._complaint = f"the log can be read up to {message.offset()} only"
            if message.offset() >= self._split.next_offset:
                self._move_to(self._split.next_offset)
        elif name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._out_of_range(consumer)
        elif name in ("TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION"):
            raise SecurityFailed(self._sentence(error.str()))
        elif name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            if time.monotonic() - self._moved_s > UNKNOWN_TOPIC_S:
                raise DataLoss(self._sentence(error.str()))
        elif error.retriable() or name.startswith("_"):
            self._complaint = error.str()
        else:
            raise ReadFailed(self._sentence(error.str()))

    def _out_of_range(self, consumer: Consumer) -> None:
        log_start, log_end = consumer.get_watermark_offsets(self._place(), ANSWER_S)
        lost_to, reason = what_is_gone(self._position, self._split.next_offset, log_start, log_end)
        is_missed = not self._split.from_earliest or self._position > log_end
        sentence = self._sentence(reason)
        if is_missed and self._settings.fail_on_data_loss:
            raise DataLoss(sentence)
        if is_missed:
            logger.warning("%s", sentence)
        self._move_to(lost_to)
        self._assign(consumer)

    def _check_topic(self) -> None:
        planned = self._split.topic_id
        if planned is None:
            return
        found = self._topic_id()
        if found != planned:
            raise TopicRecreated(
                self._sentence(
                    f"the topic was deleted and created anew: it had the id {planned} when the read was planned, and "
                    f"has {found} now. Start a new query, or set failOnDataLoss=false to skip what is gone"
                )
            )

    def _topic_id(self) -> UUID:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        config = {**self._config(), "group.id": None}
        consumers_only = ("enable.", "auto.", "isolation.", "check.", "fetch.", "max.", "group.")
        admin = AdminClient(
            {name: value for name, value in config.items() if not name.startswith(consumers_only)}
        )
        try:
            described = admin.describe_topics(TopicCollection([self._split.topic]), request_timeout=ANSWER_S)
            topic_id = described[self._split.topic].result(ANSWER_S).topic_id
        except KafkaException as reason:
            refusal = SecurityFailed if self._refusal else DataLoss
            raise refusal(self._sentence(self._refusal or reason.args[0].str())) from None
        both = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
        return UUID(bytes=b"".join(bits.to_bytes(8, "big", signed=True) for bits in both))

    def _move_to(self, position: int) -> None:
        self._position = position
        self._moved_s = time.monotonic()

    def _sentence(self, reason: str) -> str:
        return f"reading {self._split}: {reason}."


def _columns(rows: list[Message], wanted: Collection[str]) -> Columns:
    made: dict[str, list[Any]] = {"offset": [message.offset() for message in rows]}
    if "key" in wanted:
        made["key"] = [message.key() for message in rows]
    if "value" in wanted:
        made["value"] = [message.value() for message in rows]
    if "timestamp" in wanted or "timestampType" in wanted:
        times = [message.timestamp() for message in rows]
        made["timestamp"] = [max(-MICROS_MAX, min(MICROS_MAX, millis * 1000)) for _, millis in times]
        made["timestampType"] = [LOG_APPEND_TIME if kind == 2 else CREATE_TIME for kind, _ in times]
    if "headers" in wanted:
        made["headers"] = [
            [{"key": name, "value": content} for name, content in message.headers() or ()] or None
            for message in rows
        ]
    return {name: pa.array(values, TYPES[name]) for name, values in made.items()}
