"""What a task has written, noted in the same transaction: an offset committed for a group of the task's own.

A marker says: this version (the batch of a query) is written, so many rows with this checksum. It is the offset
`version + 1` with the rest as its metadata, on partition 0 of a topic that is there for this alone and stays empty:
Kafka takes no offsets for topics that it does not know. The group has no members, ever. It lives as long as committed
offsets do (`offsets.retention.minutes`, seven days by default), which bounds how long a query may lie down in
mid-batch.

Two ways to read (KIP-447): *unstable* gives what is committed, whatever transaction is open; *stable* has no answer
while one is. A consumer asks for the one or the other by its isolation level. (librdkafka's admin client could do both,
but the process ends with a segmentation fault where a coordinator has moved: OffsetFetch wants a consumer's state
there.) Both ask again while a coordinator moves or loads, for `READ_S_MAX` at most; for less where no broker is
reached, and not at all where one refuses the login or the certificate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.spark.topic_sink.heard import Heard, Refused

READ_S_MAX = 60.0
UNREACHED_S_MAX = 15.0
"""How long brokers are waited for that cannot be connected to, none of them: they may be starting."""
REQUEST_S = 15.0
LOOK_S = 0.5
"""How long the first question waits before it is looked why there is no answer; the next ones wait longer."""
PAUSE_S_MAX = 1.0
FORMAT = "1"
PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)
"""Errors that end when a coordinator has moved, loaded or been elected, or a broker has come back."""


class MarkerUnreadable(Exception):
    """What a task has written cannot be found out, now."""


@dataclass(frozen=True, slots=True)
class Marker:
    version: int
    rows: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum:x}"

    def as_offset(self, topic: str) -> Any:
        return TopicPartition(topic, 0, self.version + 1, metadata=f"{FORMAT} {self.rows} {self.checksum:x}")

    @classmethod
    def of(cls, offset: Any) -> Marker | None:
        """None where nothing was committed."""
        if offset.offset < 0:
            return None
        words = (offset.metadata or "").split(" ")
        if len(words) != 3 or words[0] != FORMAT:
            raise MarkerUnreadable(
                f"the marker on {offset.topic} has the unknown metadata {offset.metadata!r}"
            )
        return cls(offset.offset - 1, int(words[1]), int(words[2], 16))


class MarkerGroup:
    """The group that one task's markers are committed for."""

    def __init__(self, config: dict[str, str], topic: str, group: str) -> None:
        self._config = {
            "log_level": "3",
            **config,
            "group.id": group,
            "enable.auto.commit": "false",
        }
        self._topic = topic
        self.name = group
        self._heard = Heard.by(config)
        self._reader = self._consumer("read_uncommitted")

    def _consumer(self, isolation_level: str) -> Any:
        return Consumer({**self._config, "isolation.level": isolation_level, "error_cb": self._heard})

    def read(self) -> Marker | None:
        """What is committed. MarkerUnreadable where no coordinator answers in time."""
        return self._read(self._reader, READ_S_MAX)

    def read_stable(self, within_s: float = READ_S_MAX) -> Marker | None:
        """What is committed, when no transaction is open that has another marker."""
        reader = self._consumer("read_committed")
        try:
            return self._read(reader, within_s)
        finally:
            reader.close()

    def _read(self, reader: Any, within_s: float) -> Marker | None:
        def ask(timeout_s: float) -> Any:
            try:
                (offset,) = reader.committed([TopicPartition(self._topic, 0)], timeout_s)
            finally:
                reader.poll(0)  # lets it hear
            if offset.error is not None:
                raise KafkaException(offset.error)
            return offset

        return Marker.of(patiently(ask, f"the marker of {self.name}", within_s, self._heard))

    def close(self) -> None:
        self._reader.close()


@lru_cache(maxsize=16)
def ensure_topic(config: tuple[tuple[str, str], ...], topic: str) -> None:
    """The topic is there when this returns; it is created where it is not, with the cluster's defaults."""
    heard = Heard.by(dict(config))
    admin = AdminClient({"log_level": "3", **dict(config), "error_cb": heard})

    def create(timeout_s: float) -> None:
        try:
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
            answer(described[topic], admin, heard)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        new = NewTopic(topic, num_partitions=1, replication_factor=-1)
        try:
            answer(admin.create_topics([new], request_timeout=timeout_s)[topic], admin, heard)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    patiently(create, f"topic {topic}", READ_S_MAX, heard)


def answer(future: Future[Any], admin: AdminClient, heard: Heard) -> Any:
    """A request has a time-out of its own."""
    while not wait([future], LOOK_S).done:
        admin.poll(0)
        heard.check()
    admin.poll(0)
    return future.result()


def patiently(ask: Callable[[float], Any], what: str, within_s: float, heard: Heard) -> Any:
    """`ask` gets the time that it may take. MarkerUnreadable with the cause, as far as that was heard."""
    started_s, pause_s, look_s = time.monotonic(), 0.02, min(LOOK_S, within_s)
    while True:
        try:
            found = ask(look_s)
            heard.are_all_down = False
            return found
        except Refused as refusal:
            raise MarkerUnreadable(f"{what}: {refusal}") from None
        except KafkaException as failure:
            error = failure.args[0]
            limit_s = min(within_s, UNREACHED_S_MAX) if heard.are_all_down else within_s
            is_over = time.monotonic() + pause_s > started_s + limit_s
            if error.code() not in PASSING or heard.refusal is not None or is_over:
                raise MarkerUnreadable(f"{what}: {heard.explain(error.str())}") from None
        time.sleep(pause_s)
        pause_s, look_s = min(2 * pause_s, PAUSE_S_MAX), min(2 * look_s, REQUEST_S, within_s)
