"""A member of a consumer group in a process of its own, so that it can be killed and paused.

Prints a JSON line for each thing that happens: {"assigned": [partitions]}, {"revoked": [...]}, {"lost": [...]},
{"message": [partition, offset, value]}, {"committed": {...}}, {"failed": "..."}. It commits after each piece that it
has printed. The end of its stdin, or SIGTERM, lets it leave the group.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any

SESSION_MS = 6000
# kafka-python 3.0.12 joins before it knows the topic's partitions (its metadata waits for a back-off of 100 ms), and
# joins again when it does. It forgets that second join for good when a poll ends between the answers to JoinGroup and
# SyncGroup, and polls of 100 ms end just there. So its first poll is one that outlasts the start. It may also take the
# metadata of no topics for those of its subscription; so it asks again before that poll is over.
FIRST_POLL_MS = 5000
METADATA_AGE_MS = 2000


class Stop:
    def __init__(self) -> None:
        self.wanted = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.wanted.set())
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.read()
        self.wanted.set()


def tell(**news: Any) -> None:
    print(json.dumps(news), flush=True)


def confluent(settings: dict[str, Any], stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    properties = {
        "bootstrap.servers": settings["bootstrap"],
        "group.id": settings["group"],
        "client.id": settings["client_id"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": settings["assignor"],
        "topic.metadata.refresh.interval.ms": 2000,  # new partitions are found soon
        "log_level": 0,
    }
    if settings["instance"]:
        properties["group.instance.id"] = settings["instance"]
    if settings["protocol"] == "consumer":  # then the coordinator says these
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            del properties[name]
        properties["group.protocol"] = "consumer"
    consumer = Consumer(properties)

    def numbers(places: Any) -> list[int]:
        return sorted(place.partition for place in places)

    consumer.subscribe(
        [settings["topic"]],
        on_assign=lambda _, places: tell(assigned=numbers(places)),
        on_revoke=lambda _, places: tell(revoked=numbers(places)),
        on_lost=lambda _, places: tell(lost=numbers(places)),
    )
    try:
        while not stop.wanted.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                tell(failed=message.error().name())
                if message.error().code() == KafkaError._FATAL:
                    os._exit(1)  # fenced: nothing of it may touch the group any more
                continue
            tell(message=[message.partition(), message.offset(), message.value().decode()])
            place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
            try:
                consumer.commit(offsets=[place], asynchronous=False)
            except KafkaException as error:
                tell(failed=error.args[0].name())
    finally:
        consumer.close()


def kafka_python(settings: dict[str, Any], stop: Stop) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell(revoked=sorted(place.partition for place in revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell(assigned=sorted(place.partition for place in assigned))

    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        client_id=settings["client_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    patience_ms = FIRST_POLL_MS
    try:
        while not stop.wanted.is_set():
            polled = consumer.poll(timeout_ms=patience_ms)
            patience_ms = 100
            for messages in polled.values():
                for message in messages:
                    tell(message=[message.partition, message.offset, message.value.decode()])
                try:
                    consumer.commit()
                except KafkaError as error:
                    tell(failed=type(error).__name__)
    finally:
        consumer.close()


def aiokafka(settings: dict[str, Any], stop: Stop) -> None:
    asyncio.run(_aiokafka(settings, stop))


async def _aiokafka(settings: dict[str, Any], stop: Stop) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell(revoked=sorted(place.partition for place in revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell(assigned=sorted(place.partition for place in assigned))

    consumer = AIOKafkaConsumer(
        partition_assignment_strategy=(RangePartitionAssignor,),  # the one that all clients here have
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        client_id=settings["client_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    await consumer.start()
    try:
        while not stop.wanted.is_set():
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    tell(message=[message.partition, message.offset, message.value.decode()])
                try:
                    await consumer.commit()
                except KafkaError as error:
                    tell(failed=type(error).__name__)
    finally:
        await consumer.stop()


KINDS = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    KINDS[asked["kind"]](asked, Stop())
