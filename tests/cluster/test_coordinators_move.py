"""Transactions and groups in a cluster: their parts are on several brokers, and go on when one of these dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.broker.identity import decide_identity
from moldau.broker.interface import Found
from moldau.broker.node import Broker
from moldau.controller.producer_ids import BLOCK_SIZE
from moldau.coordinator.transaction.messages import End, Markers

from .brokers import Brokers
from .transactional import Transactional

TOPIC = "data"
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers() as brokers:
        brokers.create(TOPIC, 1, 2, 3)
        brokers.make_coordinators(TRANSACTION_STATE)
        brokers.make_coordinators(CONSUMER_OFFSETS)
        brokers.wait_for_in_sync(TOPIC, TRANSACTION_STATE, CONSUMER_OFFSETS)
        yield brokers


def producer(brokers: Brokers, coordinator: int, version: int) -> Transactional:
    made = Transactional(brokers, brokers.key_led_by(TRANSACTION_STATE, coordinator), version)
    made.init()
    return made


def everywhere(*values: str) -> dict[int, list[str]]:
    return {index: list(values) for index in range(3)}


def committed(brokers: Brokers) -> dict[int, list[str]]:
    """What a reader of committed messages sees, when every transaction has ended."""
    brokers.wait_for(lambda: all(map(_is_stable, brokers.running.values())), "all transactions to end")
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "group.id": "readers",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(3)])
        found: dict[int, list[str]] = {0: [], 1: [], 2: []}
        at_end: set[int] = set()
        while len(at_end) < len(found):
            message = consumer.poll(30)
            assert message is not None, f"partitions {found.keys() - at_end} do not end"
            if message.error() is None:
                value = message.value()
                assert value is not None
                found[message.partition()].append(value.decode())
            elif message.partition() is not None:
                at_end.add(message.partition())
        return found
    finally:
        consumer.close()


def _is_stable(broker: Broker) -> bool:
    led = [one for one in list(broker.partitions.values()) if not one.refusal]
    return all(one.last_stable_offset == one.high_watermark == one.log.next_offset for one in led) and all(
        state.leader in broker.image.brokers for state in broker.image.topics[TOPIC].partitions
    )


@VERSIONS
@pytest.mark.parametrize("coordinator", [1, 2, 3])
def test_a_transaction_over_three_brokers_is_seen_whole_or_not_at_all(
    brokers: Brokers, coordinator: int, version: int
) -> None:
    one = producer(brokers, coordinator, version)
    for number, is_commit in enumerate([True, False, True, True, False]):
        for index in range(3):
            one.send(TOPIC, index, str(number))
        one.end(is_commit=is_commit)
    assert committed(brokers) == everywhere("0", "2", "3")


@VERSIONS
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_coordinator_writes_the_markers_that_a_killed_one_has_not(
    brokers: Brokers, version: int, is_commit: bool
) -> None:
    one = producer(brokers, 2, version)
    for index in range(3):
        one.send(TOPIC, index, "decided")
    decided = threading.Event()
    coordinators: Any = brokers.running[2].coordinators

    async def hold(_markers: Markers) -> dict[Any, ErrorCode]:
        decided.set()
        await asyncio.Event().wait()
        return {}

    coordinators._markers.write = hold
    one.end(is_commit=is_commit)
    assert decided.wait(30)
    brokers.kill(2)
    assert committed(brokers) == everywhere(*["decided"] * is_commit)
    one.send(TOPIC, 1, "next")
    one.end(is_commit=True)
    assert committed(brokers)[1][-1] == "next"


@VERSIONS
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_finds_the_next_leader_of_its_partition(
    brokers: Brokers, version: int, is_commit: bool
) -> None:
    """The leader dies with the decision made and its marker not written; the coordinator is on another broker."""
    one = producer(brokers, 1, version)
    for index in range(3):
        one.send(TOPIC, index, "decided")
    brokers.kill(3)
    one.end(is_commit=is_commit)
    assert committed(brokers) == everywhere(*["decided"] * is_commit)


@VERSIONS
def test_a_transaction_goes_on_when_its_coordinator_moves(brokers: Brokers, version: int) -> None:
    one = producer(brokers, 2, version)
    one.send(TOPIC, 0, "before")
    brokers.stop(2)
    one.send(TOPIC, 2, "after")
    one.end(is_commit=True)
    assert committed(brokers) == {0: ["before"], 1: [], 2: ["after"]}


@VERSIONS
@pytest.mark.parametrize("dies", ["before the end", "never"])
def test_offsets_of_a_group_count_with_their_transaction(brokers: Brokers, version: int, dies: str) -> None:
    """The group's coordinator, the transaction's and the leader of the data are three brokers."""
    one = producer(brokers, 1, version)
    group = brokers.key_led_by(CONSUMER_OFFSETS, 2)
    one.commit_offset(group, TOPIC, 5)
    one.send(TOPIC, 2, "copied")
    one.end(is_commit=True)
    assert one.offset_of(group, TOPIC) == 5
    one.commit_offset(group, TOPIC, 9)
    if dies == "before the end":
        brokers.kill(2)
    one.end(is_commit=False)
    assert one.offset_of(group, TOPIC) == 5
    one.commit_offset(group, TOPIC, 7)
    one.end(is_commit=True)
    assert one.offset_of(group, TOPIC) == 7


def test_a_leader_asks_the_coordinator_elsewhere_before_it_takes_a_transactions_first_batch(
    brokers: Brokers,
) -> None:
    one = producer(brokers, 1, version=1)
    with pytest.raises(KafkaError) as refused:
        one.send(TOPIC, 1, "never added", adds=False)
    assert refused.value.code is ErrorCode.transaction_abortable
    one.send(TOPIC, 1, "added")
    one.end(is_commit=True)
    assert committed(brokers)[1] == ["added"]
    assert brokers.running[1].metrics.requests["AddPartitionsToTxn"] >= 3


@VERSIONS
def test_a_producer_that_was_replaced_writes_nothing_wherever_it_tries(
    brokers: Brokers, version: int
) -> None:
    old = producer(brokers, 1, version)
    new = Transactional(brokers, old.transactional_id, version)
    new.init()
    for index in range(3):
        with pytest.raises(KafkaError) as refused:
            old.send(TOPIC, index, "of the old", adds=False)
        assert refused.value.code is ErrorCode.invalid_producer_epoch
    new.send(TOPIC, 1, "of the new")
    new.end(is_commit=True)
    assert committed(brokers) == {0: [], 1: ["of the new"], 2: []}


def test_every_broker_names_the_same_coordinator_of_topics_that_any_of_them_makes() -> None:
    with Brokers(4) as brokers:
        for broker_id, topic in ((2, CONSUMER_OFFSETS), (4, TRANSACTION_STATE)):
            asked = brokers.running[broker_id].coordinators
            assert broker_id != brokers.controller_id
            first = brokers.call(lambda asked=asked, topic=topic: asked.find(topic, "key"))
            assert first.error is ErrorCode.none, "the first who asks is answered"
            for key in ("key", "another", "one more"):
                found = {
                    brokers.call(
                        lambda broker=broker, key=key, topic=topic: broker.coordinators.find(topic, key)
                    )
                    for broker in brokers.running.values()
                }
                assert found == {Found(ErrorCode.none, brokers.coordinator_of(topic, key))}
            states = brokers.any.image.topics[topic].partitions
            assert {len(state.replicas) for state in states} == {3}
            assert len({state.leader for state in states}) > 1


def test_no_producer_id_is_given_twice_whoever_is_the_controller(brokers: Brokers) -> None:
    given: list[int] = []

    async def take(broker: Broker) -> None:
        for _ in range(BLOCK_SIZE // 2 + 100):
            try:
                given.append(await broker.next_producer_id())
            except KafkaError:
                await broker.tasks.sleep(0.02)

    async def take_everywhere() -> dict[int, asyncio.Task[None]]:
        running = brokers.running.items()
        return {id_: broker.tasks.spawn(take(broker), name="take ids") for id_, broker in running}

    async def until_done(taking: dict[int, asyncio.Task[None]]) -> None:
        for broker_id in brokers.running:
            await taking[broker_id]

    seen = set()
    for turn in range(6):
        controller = brokers.controller_id
        seen.add(controller)
        taking = brokers.call(take_everywhere)
        (brokers.kill if turn % 2 else brokers.stop)(controller)
        brokers.call(lambda taking=taking: until_done(taking))
        brokers.start(controller)
    assert len(seen) > 1 and len(given) > 4 * BLOCK_SIZE
    assert len(set(given)) == len(given)


@VERSIONS
def test_below_the_least_in_sync_nothing_is_decided_and_later_it_is(brokers: Brokers, version: int) -> None:
    """One of three is left: its coordinator refuses what it cannot make safe, and goes on when another is back."""
    one = producer(brokers, 1, version)
    one.send(TOPIC, 0, "safe")
    brokers.kill(2)
    brokers.kill(3)
    last = brokers.running[1]
    brokers.wait_for(lambda: len(last.image.brokers) == 1, "the others to be fenced")
    end = End(one.transactional_id, one.producer_id, one.epoch, True, version)
    answer = brokers.call(lambda: _decide(last, end))
    assert answer.error is ErrorCode.coordinator_not_available
    brokers.start(2)
    one.end(is_commit=True)
    assert committed(brokers)[0] == ["safe"]


async def _decide(broker: Broker, end: End) -> Any:
    return await decide_identity(
        broker,
        end.transactional_id,
        lambda shard, new_id, reply, moment: shard.end(end, new_id, reply, moment),
    )
