"""What a task has written, noted in the same transaction: an offset committed for a group of the task's own.

A marker says: this version (the batch of a query) is written, so many rows with this checksum. It is the offset
`version + 1` with the rest as its metadata, on partition 0 of a topic that is there for this alone and stays empty:
Kafka takes no offsets for topics that it does not know. The group has no members, ever. It lives as long as committed
offsets do (`offsets.retention.minutes`, seven days by default), which bounds how long a query may lie down in
mid-batch.

Two ways to read (KIP-447): *unstable* gives what is committed, whatever transaction is open; *stable* has no answer
while one is. Both ask again while a coordinator moves or loads, for `READ_S_MAX` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

READ_S_MAX = 60.0
REQUEST_S = 15.0
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


class Markers:
    """The markers of a cluster."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.topic = topic
        self._admin = AdminClient({"log_level": "3", **config})
        self._has_topic = False

    def read(self, group: str, *, stable: bool, within_s: float = READ_S_MAX) -> Marker | None:
        """MarkerUnreadable where it cannot be found out in that time: a transaction is open, no coordinator answers."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(self.topic, 0)])

        def ask() -> Any:
            found = self._admin.list_consumer_group_offsets(
                [asked], require_stable=stable, request_timeout=REQUEST_S
            )
            offset = found[group].result(REQUEST_S + 5).topic_partitions[0]
            if offset.error is not None:
                raise KafkaException(offset.error)
            return offset

        return Marker.of(self._patiently(ask, f"the marker of {group}", within_s))

    def ensure_topic(self) -> None:
        """The topic is there when this returns; it is created where it is not, with the cluster's defaults."""
        if not self._has_topic:
            self._patiently(self._create_topic, f"topic {self.topic}", READ_S_MAX)
            self._has_topic = True

    def _create_topic(self) -> None:
        try:
            described = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_S)
            described[self.topic].result(REQUEST_S + 5)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        new = NewTopic(self.topic, num_partitions=1, replication_factor=-1)
        try:
            self._admin.create_topics([new], request_timeout=REQUEST_S)[self.topic].result(REQUEST_S + 5)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _patiently(self, ask: Callable[[], Any], what: str, within_s: float) -> Any:
        deadline_s, pause_s = time.monotonic() + within_s, 0.02
        while True:
            try:
                return ask()
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() not in PASSING or time.monotonic() + pause_s > deadline_s:
                    raise MarkerUnreadable(f"{what}: {error.str()}") from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def close(self) -> None:
        self._admin.poll(0)
