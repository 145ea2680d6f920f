"""What the driver asks of the brokers: which partitions there are, their offsets, and the group's commits.

One client for all of it, opened at the first question. A question that fails is asked again, as often as the
options say, with a fresh client. A broker that refuses the login or the certificate is not waited for. Nothing here
reads records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moldau.spark.source.errors import OffsetsUnavailable
from moldau.spark.source.offsets import Offsets, TopicPartition, read_id
from moldau.spark.source.options import Assign, SourceOptions, Subscribe, SubscribePattern

log = logging.getLogger(__name__)

T = TypeVar("T")
REQUEST_TIMEOUT_S = 60.0
ERRORS = "3"
"""librdkafka's level of the log: it would warn of each option that is for reading only."""
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
REFUSAL_LOOK_S = 0.5
NO_ID = UUID(int=0)
"""What brokers before Kafka 2.8 answer for a topic's id."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions that the query reads, now."""

    partitions: frozenset[TopicPartition]
    ids: Mapping[str, UUID]


class Cluster:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._config = {"log_level": ERRORS, **options.client_config("admin")}
        self._admin: AdminClient | None = None
        self._heard: KafkaError | None = None
        self._topics: Topics | None = None
        self._topics_until = 0.0
        self._isolation = (
            IsolationLevel.READ_COMMITTED if options.read_committed else IsolationLevel.READ_UNCOMMITTED
        )

    def topics(self) -> Topics:
        """The option `partition.metadata.cache.ttl.ms` says for how long an answer holds."""
        if self._topics is not None and time.monotonic() < self._topics_until:
            return self._topics
        self._topics = self._asked(self._find_topics)
        self._topics_until = time.monotonic() + self._options.metadata_ttl_ms / 1000
        return self._topics

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The high watermark, or the last stable offset for `isolation.level=read_committed`."""
        return self._list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset whose timestamp is as young; -1 where there is none."""
        return self._list_offsets(
            {each: OffsetSpec.for_timestamp(time_ms) for each, time_ms in timestamps_ms.items()}
        )

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """The group's offsets; a partition without one is left out."""
        wanted = [ClientPartition(*each) for each in sorted(partitions)]

        def ask(admin: AdminClient) -> Offsets:
            request = [ConsumerGroupTopicPartitions(group, wanted)]
            (future,) = admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S).values()
            return {
                TopicPartition(each.topic, each.partition): each.offset
                for each in self._answer(admin, future).topic_partitions
                if each.error is None and each.offset >= 0
            }

        return self._asked(ask)

    def close(self) -> None:
        self._admin = None

    def _list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        if not wanted:
            return {}

        def ask(admin: AdminClient) -> Offsets:
            request = {ClientPartition(*each): spec for each, spec in wanted.items()}
            answers = admin.list_offsets(
                request, isolation_level=self._isolation, request_timeout=REQUEST_TIMEOUT_S
            )
            return {
                TopicPartition(each.topic, each.partition): self._answer(admin, future).offset
                for each, future in answers.items()
            }

        return self._asked(ask)

    def _find_topics(self, admin: AdminClient) -> Topics:
        names = self._names(admin)
        found = describe(admin, names, lambda future: self._answer(admin, future))
        if missing := [name for name in names if name not in found]:
            self._report_missing(missing)
        partitions = {
            TopicPartition(name, each.id)
            for name, topic in found.items()
            if not topic.is_internal
            for each in topic.partitions
        }
        if isinstance(self._options.choice, Assign):
            partitions &= self._options.choice.partitions
        ids = {name: read_id(str(topic.topic_id)) for name, topic in found.items()}
        used = {each.topic for each in partitions}
        return Topics(
            frozenset(partitions),
            {name: each for name, each in ids.items() if name in used and each != NO_ID},
        )

    def _names(self, admin: AdminClient) -> list[str]:
        match self._options.choice:
            case Assign(partitions):
                return sorted({each.topic for each in partitions})
            case Subscribe(topics):
                return sorted(set(topics))
            case SubscribePattern(pattern):
                return sorted(
                    name
                    for name in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
                    if pattern.search(name)
                )

    def _report_missing(self, names: list[str]) -> None:
        message = (
            f"UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition: there is no topic "
            f"{', '.join(names)} on {self._options.bootstrap_servers}."
        )
        if self._options.fail_on_data_loss or isinstance(self._options.choice, Assign):
            raise OffsetsUnavailable(message)
        log.warning("%s It is left out, since failOnDataLoss is false.", message)

    def _asked(self, ask: Callable[[AdminClient], T]) -> T:
        attempts = max(1, self._options.offset_attempts)
        for attempt in range(1, attempts + 1):
            try:
                if self._admin is None:
                    self._heard = None
                    self._admin = AdminClient(self._config | {"error_cb": self._on_error})
                return ask(self._admin)
            except (KafkaException, OffsetsUnavailable) as error:
                reason = self._reason(error)
                self._admin = None
                if attempt == attempts:
                    raise OffsetsUnavailable(f"The offsets cannot be had: {reason}") from error
                log.warning("Error in attempt %d getting Kafka offsets: %s", attempt, reason)
                time.sleep(self._options.offset_retry_ms / 1000)
        raise AssertionError("unreachable")

    def _answer(self, admin: AdminClient, future: Future[T]) -> T:
        while not wait([future], REFUSAL_LOOK_S).done:
            admin.poll(0)
            if self._heard is not None and self._heard.code() in REFUSALS:
                raise KafkaException(self._heard)
        return future.result()

    def _reason(self, error: Exception) -> str:
        """With what the client has heard of the brokers: the request's own error is a time-out, where none answers."""
        if self._admin is not None:
            self._admin.poll(0)
        return str(error) if self._heard is None else f"{error}; {self._heard.str()}"

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._heard = error


def describe(
    admin: AdminClient, names: list[str], answer: Callable[[Future[Any]], Any] = Future.result
) -> dict[str, Any]:
    """Their descriptions, without those that do not exist."""
    if not names:
        return {}
    found = {}
    for name, future in admin.describe_topics(
        TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S
    ).items():
        try:
            found[name] = answer(future)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found
