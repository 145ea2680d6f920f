"""kafka-python: pure Python, its own implementation of the protocol."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import BrokerResponseError

from .base import TIMEOUT_S, Client, Message, Received, Refused


class KafkaPython(Client):
    name = "kafka-python"
    sends_nulls_only = False

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            **self.security.kafka_python(),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
            max_request_size=10_000_000,
        )
        with closing(producer), refusals():
            sent = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    list(message.headers),
                    partition,
                    message.timestamp_ms,
                )
                for message in messages
            ]
            for future in sent:
                future.get(timeout=TIMEOUT_S)

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            **self.security.kafka_python(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            consumer.assign([place])
            consumer.seek(place, offset)
            while len(received) < count and time.monotonic() < deadline:
                for record in consumer.poll(timeout_ms=500, max_records=count - len(received)).get(place, ()):
                    headers = tuple((name, value) for name, value in record.headers)
                    received.append(
                        Received(record.value, record.key, headers, record.timestamp, record.offset)
                    )
        return received

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap_servers,
            **self.security.kafka_python(),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        values: list[bytes | None] = []
        deadline = time.monotonic() + TIMEOUT_S
        with closing(consumer), refusals():
            while len(values) < count and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=500, max_records=count - len(values)).values():
                    values += [record.value for record in records]
            consumer.commit()
        return values

    def transact(self, topic: str, values: Sequence[bytes], transactional_id: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            **self.security.kafka_python(),
            transactional_id=transactional_id,
        )
        with closing(producer), refusals():
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value)
            producer.commit_transaction()

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            offset: int = found.offset if found is not None else consumer.end_offsets([place])[place]
        return offset

    def topics(self) -> dict[str, int]:
        with self._admin() as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        client = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, **self.security.kafka_python())
        with closing(client) as admin, refusals():
            yield admin

    def create(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        details = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        with self._admin() as admin:
            admin.create_topics({topic: details}, timeout_ms=TIMEOUT_S * 1000)

    def delete(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic], timeout_ms=TIMEOUT_S * 1000)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        with self._admin() as admin:
            answer = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}

    def alter_configs(self, topic: str, *, put: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        changes: dict[str, Any] = {key: (AlterConfigOp.SET, value) for key, value in put.items()}
        changes |= dict.fromkeys(remove, (AlterConfigOp.DELETE, None))
        self._alter(topic, changes, incremental=True)

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._alter(topic, dict(configs), incremental=False)

    def _alter(self, topic: str, changes: Mapping[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(changes))
        with self._admin() as admin:
            outcome = admin.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        error = str(outcome["topic"][topic])
        if error != "OK":
            found = re.match(r"\[Error (\d+)\]", error)
            assert found, error
            raise Refused(int(found[1]), error)


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as refused:
        raise Refused(refused.errno, str(refused)) from refused
