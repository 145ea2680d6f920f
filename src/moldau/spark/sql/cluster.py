"""What the SQL session asks of the brokers itself: the names of topics, and a bounded sample of one's records.

Topics are looked at when a statement names them, never all of them: a cluster with thousands costs what one costs.
The sample is the youngest records of each partition: at most RECORDS_MAX of them, BYTES_MAX, and SAMPLE_S seconds.
No group is joined, and a topic is created only for a streaming table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from moldau.spark.client_options import client_config
from moldau.spark.source.cluster import describe

RECORDS_MAX: Final = 1000
BYTES_MAX: Final = 8 << 20
PARTITIONS_MAX: Final = 100
SAMPLE_S: Final = 3.0
QUIET: Final = {"log_level": "0", "error_cb": lambda _error: None}
SAMPLING: Final = {
    "group.id": "moldau-sql",  # librdkafka insists on a name; it is never used
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": str(256 << 10),
    "queued.max.messages.kbytes": str(BYTES_MAX >> 10),
}


class Unreachable(Exception):
    """The cluster does not answer, in a sentence."""


@dataclass(slots=True)
class Sample:
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    bytes: int = 0

    @property
    def is_enough(self) -> bool:
        return len(self.values) >= RECORDS_MAX or self.bytes >= BYTES_MAX


class Brokers:
    """One client for each kind of question, opened at the first."""

    def __init__(self, kafka: Mapping[str, str], timeout_s: float) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None

    def topics(self, timeout_s: float | None = None) -> dict[str, int]:
        """All topics and how many partitions they have, in one question."""
        with self._lock:
            try:
                found = self._asked().list_topics(timeout=timeout_s or self._timeout_s).topics
            except KafkaException as error:
                raise self._unreachable(error) from error
        return {name: len(found[name].partitions) for name in sorted(found)}

    def sample(self, topic: str, deadline_s: float = SAMPLE_S) -> Sample | None:
        """Some records of a topic; None where there is no such topic."""
        with self._lock:
            try:
                found = describe(self._asked(), [topic])
                if topic not in found:
                    return None
                partitions = [each.id for each in found[topic].partitions]
                return self._read(topic, partitions[:PARTITIONS_MAX], deadline_s)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_EXCEPTION:  # no name that a topic can have
                    return None
                raise self._unreachable(error) from error

    def create(self, topic: str, partitions: int | None) -> None:
        """Make a topic where it is missing, with as many partitions as the brokers think fit unless it is said."""
        with self._lock:
            try:
                admin = self._asked()
                if not describe(admin, [topic]):
                    (made,) = admin.create_topics([NewTopic(topic, partitions or -1, -1)]).values()
                    made.result(self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise Unreachable(f"The topic {topic} cannot be made: {error.args[0].str()}.") from error

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
            self._consumer = self._admin = None

    def _asked(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**client_config(self._kafka, "admin"), **QUIET})
        return self._admin

    def _read(self, topic: str, partitions: list[int], deadline_s: float) -> Sample:
        positions = self._positions(topic, partitions)
        sample = Sample()
        if not positions:
            return sample
        if self._consumer is None:
            self._consumer = Consumer({**client_config(self._kafka, "consumer"), **SAMPLING, **QUIET})
        self._consumer.assign(positions)
        left = {each.partition for each in positions}
        until = time.monotonic() + deadline_s
        try:
            while left and not sample.is_enough and time.monotonic() < until:
                for message in self._consumer.consume(RECORDS_MAX, 0.1):
                    if message.error() is not None:
                        left.discard(message.partition())  # its end, or what a query will say better
                    elif not sample.is_enough:
                        take(sample, message)
        finally:
            self._consumer.unassign()
        return sample

    def _positions(self, topic: str, partitions: list[int]) -> list[ClientPartition]:
        """Where to begin in each partition that has records."""
        first = self._offsets(topic, partitions, OffsetSpec.earliest())
        after = self._offsets(topic, partitions, OffsetSpec.latest())
        share = max(1, RECORDS_MAX // max(1, len(partitions)))
        return [
            ClientPartition(topic, each, max(first[each], after[each] - share))
            for each in partitions
            if after[each] > first[each]
        ]

    def _offsets(self, topic: str, partitions: list[int], spec: Any) -> dict[int, int]:
        wanted = {ClientPartition(topic, each): spec for each in partitions}
        answers = self._asked().list_offsets(wanted, request_timeout=self._timeout_s)
        return {each.partition: future.result().offset for each, future in answers.items()}

    def _unreachable(self, error: KafkaException) -> Unreachable:
        servers = self._kafka.get("bootstrap.servers", "")
        return Unreachable(f"The cluster at {servers} does not answer: {error.args[0].str()}.")


def take(sample: Sample, message: Any) -> None:
    sample.values.append(message.value())
    sample.keys.append(message.key())
    sample.bytes += len(message.value() or b"") + len(message.key() or b"")
