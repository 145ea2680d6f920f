"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from .base import TIMEOUT_S, Client, Message, Received, Refused


class Confluent(Client):
    name = "confluent-kafka"

    @property
    def _base(self) -> dict[str, Any]:
        # Brokers come and go in these tests: what librdkafka has to say about it fills pages.
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self.security.librdkafka()}

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = Producer(
            {
                **self._base,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 20,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "message.max.bytes": 10_000_000,
            }
        )
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for message in messages:
            when = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                message.value,
                message.key,
                partition,
                on_delivery=on_delivery,
                headers=list(message.headers) or None,
                **when,
            )
        left = producer.flush(TIMEOUT_S)
        if failed:
            raise Refused(failed[0].code(), failed[0].str())
        assert left == 0, f"{left} messages were not acknowledged in time"

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self._base,
                "group.id": "assigned-by-hand",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
            }
        )

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, offset)])
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(received) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(received), timeout=0.5):
                    if message.error():
                        raise Refused(message.error().code(), message.error().str())
                    received.append(_received(message))
        finally:
            consumer.close()
        return received

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({**self._base, **settings, "enable.auto.commit": False})
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(values) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(values), timeout=0.5):
                    if message.error():
                        raise Refused(message.error().code(), message.error().str())
                    values.append(message.value())
            if values:
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values

    def transact(self, topic: str, values: Sequence[bytes], transactional_id: str) -> None:
        producer = Producer({**self._base, "transactional.id": transactional_id})
        try:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as refused:
            raise Refused(refused.args[0].code(), refused.args[0].str()) from refused

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), TIMEOUT_S
            )
        finally:
            consumer.close()
        return found

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        consumer = self._consumer()
        try:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            found: int = consumer.offsets_for_times(asked, TIMEOUT_S)[0].offset
            return found if found >= 0 else consumer.get_watermark_offsets(asked[0], TIMEOUT_S)[1]
        finally:
            consumer.close()

    def topics(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._base)

    def create(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        _result(self._admin.create_topics([new], operation_timeout=TIMEOUT_S))

    def delete(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic], operation_timeout=TIMEOUT_S))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        entries = _result(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def alter_configs(self, topic: str, *, put: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in put.items()
        ]
        changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in remove]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        _result(self._admin.incremental_alter_configs([resource]))

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            futures = self._admin.alter_configs([resource])
        _result(futures)


def _received(message: Any) -> Received:
    _, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Received(message.value(), message.key(), headers, timestamp_ms, message.offset())


def _result(futures: Mapping[Any, Any]) -> Any:
    """The one outcome of an admin call about one thing."""
    (future,) = futures.values()
    try:
        return future.result(timeout=TIMEOUT_S)
    except KafkaException as refused:
        error = refused.args[0]
        raise Refused(error.code(), error.str()) from refused
