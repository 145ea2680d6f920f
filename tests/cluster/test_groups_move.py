"""Groups of both protocols whose coordinator's broker is stopped or killed: members stay, offsets are there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from moldau.base.internal_topics import CONSUMER_OFFSETS

from .brokers import Brokers

TOPIC = "data"
PARTITIONS = 6
PATIENCE_S = 40.0
PROTOCOLS = {
    "classic": {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}
ENDS = pytest.mark.parametrize("end", ["stop", "kill"])


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers() as brokers:
        brokers.create(TOPIC, 1, 2, 3, 1, 2, 3)
        brokers.make_coordinators(CONSUMER_OFFSETS)
        brokers.wait_for_in_sync(TOPIC, CONSUMER_OFFSETS)
        yield brokers


class Member:
    """A consumer on a thread of its own, with what it was given, taken and what it has read."""

    def __init__(self, brokers: Brokers, group: str, settings: dict[str, Any]) -> None:
        self.owned: set[int] = set()
        self.changes = 0
        self.read: list[str] = []
        self._is_over = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assign, on_revoke=self._revoke)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assign(self, _consumer: Any, places: list[TopicPartition]) -> None:
        self.changes += 1
        self.owned |= {place.partition for place in places}

    def _revoke(self, _consumer: Any, places: list[TopicPartition]) -> None:
        self.changes += 1
        self.owned -= {place.partition for place in places}

    def _run(self) -> None:
        while not self._is_over:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self.read.append(value.decode())
                self._commit(message)
        self._consumer.close()

    def _commit(self, message: Any) -> None:
        """Through the change of coordinators: an error that passes is tried again at the next message."""
        try:
            self._consumer.commit(message, asynchronous=False)
        except Exception as error:
            assert "fatal" not in str(error).lower(), error

    def close(self) -> None:
        self._is_over = True
        self._thread.join(30)


def send(brokers: Brokers, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all", "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def wait_for_all(members: list[Member], values: list[str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while missing := set(values).difference(*(member.read for member in members)):
        assert time.monotonic() < deadline_s, f"{len(missing)} of {len(values)} were not read"
        time.sleep(0.05)


def settled(members: list[Member]) -> bool:
    owned = [index for member in members for index in member.owned]
    return all(member.owned for member in members) and sorted(owned) == list(range(PARTITIONS))


@ENDS
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_keep_what_they_have_when_their_coordinator_moves(
    brokers: Brokers, protocol: str, end: str
) -> None:
    """No rebalance: the next coordinator knows the generation, and who has what."""
    group = brokers.key_led_by(CONSUMER_OFFSETS, 2)
    members = [Member(brokers, group, PROTOCOLS[protocol]) for _ in range(2)]
    try:
        brokers.wait_for(lambda: settled(members), "an assignment")
        before = [str(number) for number in range(30)]
        send(brokers, before)
        wait_for_all(members, before)
        owned, changes = [set(member.owned) for member in members], [member.changes for member in members]
        getattr(brokers, end)(2)
        after = [f"after-{number}" for number in range(30)]
        send(brokers, after)
        wait_for_all(members, after)
        assert brokers.coordinator_of(CONSUMER_OFFSETS, group) in (1, 3)
        assert [member.owned for member in members] == owned
        assert [member.changes for member in members] == changes
        members.append(Member(brokers, group, PROTOCOLS[protocol]))
        brokers.wait_for(lambda: settled(members), "the third member to get its part")
    finally:
        for member in members:
            member.close()


@ENDS
def test_committed_offsets_are_there_whoever_coordinates(brokers: Brokers, end: str) -> None:
    """By kafka-python, which commits; each coordinator in turn leaves, and comes back."""
    group = brokers.key_led_by(CONSUMER_OFFSETS, 1)
    place = PythonPartition(TOPIC, 0)
    offsets = iter(range(100, 200))
    for broker_id in (1, 2, 3):
        consumer = KafkaConsumer(
            bootstrap_servers=brokers.bootstrap_servers.split(","), group_id=group, enable_auto_commit=False
        )
        try:
            for _ in range(3):
                offset = next(offsets)
                consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
            getattr(brokers, end)(broker_id)
            assert consumer.committed(place) == offset
            last = next(offsets)
            consumer.commit({place: OffsetAndMetadata(last, "", -1)})
        finally:
            consumer.close()
        brokers.start(broker_id)
        brokers.wait_for_in_sync(CONSUMER_OFFSETS)
        fresh = KafkaConsumer(bootstrap_servers=brokers.bootstrap_servers.split(","), group_id=group)
        assert fresh.committed(place) == last
        fresh.close()


@ENDS
def test_aiokafka_consumes_on(brokers: Brokers, end: str) -> None:
    group = brokers.key_led_by(CONSUMER_OFFSETS, 3)

    async def scene() -> None:
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=brokers.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
        )
        producer = AIOKafkaProducer(bootstrap_servers=brokers.bootstrap_servers, acks="all")
        await consumer.start()
        await producer.start()
        try:
            found: set[bytes] = set()
            wanted: set[bytes] = set()
            for turn in range(2):
                for number in range(12):
                    value = b"%d-%d" % (turn, number)
                    await producer.send_and_wait(TOPIC, value, partition=number % PARTITIONS)
                    wanted.add(value)
                async with asyncio.timeout(PATIENCE_S):
                    while found != wanted:
                        found.add((await consumer.getone()).value)
                await consumer.commit()
                if turn == 0:
                    await asyncio.to_thread(getattr(brokers, end), 3)
        finally:
            await producer.stop()
            await consumer.stop()

    asyncio.run(scene())
