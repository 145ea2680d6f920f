"""aiokafka: asyncio, its own implementation of the protocol. Its admin client has no incremental changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from .base import TIMEOUT_S, Client, Message, Received, Refused

T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"
    sends_nulls_only = False
    alters_incrementally = False

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap_servers,
                **self.security.aiokafka(),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks="all",
                linger_ms=20,
                max_request_size=10_000_000,
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        message.value,
                        message.key,
                        partition,
                        message.timestamp_ms,
                        list(message.headers),
                    )
                    for message in messages
                ]
                await asyncio.gather(*sent)

        _run(work())

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            **self.security.aiokafka(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        async with consumer:
            yield consumer

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        async def work() -> list[Received]:
            received: list[Received] = []
            deadline = time.monotonic() + TIMEOUT_S
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                consumer.assign([place])
                consumer.seek(place, offset)
                while len(received) < count and time.monotonic() < deadline:
                    polled = await consumer.getmany(timeout_ms=500, max_records=count - len(received))
                    for record in polled.get(place, ()):
                        headers = tuple((name, value) for name, value in record.headers)
                        received.append(
                            Received(record.value, record.key, headers, record.timestamp, record.offset)
                        )
            return received

        return _run(work())

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def work() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                first = await consumer.beginning_offsets([place])
                following = await consumer.end_offsets([place])
            return first[place], following[place]

        return _run(work())

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        async def work() -> int:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                offset: int = (
                    found.offset if found is not None else (await consumer.end_offsets([place]))[place]
                )
            return offset

        return _run(work())

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        async def work() -> list[bytes | None]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self.bootstrap_servers,
                **self.security.aiokafka(),
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            async with consumer, asyncio.timeout(TIMEOUT_S):
                values = [(await consumer.getone()).value for _ in range(count)]
                await consumer.commit()
            return values

        return _run(work())

    def transact(self, topic: str, values: Sequence[bytes], transactional_id: str) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap_servers,
                **self.security.aiokafka(),
                transactional_id=transactional_id,
            )
            async with producer, producer.transaction():
                for value in values:
                    await producer.send(topic, value)

        _run(work())

    def topics(self) -> dict[str, int]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, int]:
            return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}

        return _run(self._administer(work))

    async def _administer(self, work: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers, **self.security.aiokafka())
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    def create(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))

        async def work(admin: AIOKafkaAdminClient) -> None:
            for answer in (await admin.create_topics([new], timeout_ms=TIMEOUT_S * 1000)).topic_errors:
                _check(answer[1], answer[2])

        _run(self._administer(work))

    def delete(self, topic: str) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            answers = (await admin.delete_topics([topic], timeout_ms=TIMEOUT_S * 1000)).topic_error_codes
            for _, code in answers:
                _check(code, "")

        _run(self._administer(work))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, str | None]:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            code, message, _, _, entries = answer.resources[0]
            _check(code, message)
            return {entry[0]: entry[1] for entry in entries}

        return _run(self._administer(work))

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
            (answer,) = await admin.alter_configs([resource])
            code, message, _, _ = answer.resources[0]
            _check(code, message)

        _run(self._administer(work))


def _check(code: int, message: str | None) -> None:
    if code:
        raise Refused(code, message or "")


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(asyncio.wait_for(work, TIMEOUT_S * 2))
    except KafkaError as refused:
        raise Refused(refused.errno, str(refused)) from refused
