"""Consumer groups of real clients, alone and mixed: every message to one member, nothing lost when members fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.apache_kafka import Distribution
from interop.party import Party

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-groups")]

KINDS = ("confluent", "kafka-python", "aiokafka")
PARTITIONS = 6


def produce(target: str, topic: str, count: int, *, first: int = 0) -> set[str]:
    """Numbered messages, spread over the partitions."""
    producer = Producer({"bootstrap.servers": target})
    values = {f"message {number}" for number in range(first, first + count)}
    for number in range(first, first + count):
        producer.produce(topic, f"message {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def committed(target: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": target, "group.id": group})
    try:
        places = consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=20)
        return [place.offset for place in places]
    finally:
        consumer.close()


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic("group", partitions=PARTITIONS)


@pytest.fixture
def party(target: str, topic: str) -> Party:
    return Party(target, topic, f"{topic}-group")


# ---- alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_goes_on_where_it_was(party: Party, target: str, topic: str, kind: str) -> None:
    old = produce(target, topic, 60)
    with party:
        first = party.join(kind)
        party.wait_read(old)
        first.leave()
        assert committed(target, f"{topic}-group", topic) == [10] * PARTITIONS
        new = produce(target, topic, 30, first=60)
        second = party.join(kind)
        party.wait_read(new)
        second.leave()
    assert second.values == new


def test_kafkas_console_consumer_goes_on_where_it_was(
    requires_kafka: Distribution, target: str, topic: str
) -> None:
    values = produce(target, topic, 60)

    def read(count: int) -> set[str]:
        arguments = ("--bootstrap-server", target, "--topic", topic, "--group", f"{topic}-java")
        arguments += ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000")
        return set(requires_kafka.run("console-consumer", *arguments).stdout.splitlines())

    assert read(60) == values
    new = produce(target, topic, 6, first=60)
    assert read(6) == new


# ---- together -----------------------------------------------------------------------------------------------


def test_different_clients_share_one_group(party: Party, target: str, topic: str) -> None:
    with party:
        members = [party.join(kind) for kind in KINDS]
        party.wait_shared(PARTITIONS)
        values = produce(target, topic, 120)
        party.wait_read(values)
        assert [len(member.owned) for member in members] == [2, 2, 2]
        assert sum(len(member.messages) for member in members) == 120, "a message went to two members"

        members[0].leave()
        party.wait_shared(PARTITIONS, *members[1:])
        party.wait_read(produce(target, topic, 60, first=120))


def test_java_shares_a_group_with_others(
    requires_kafka: Distribution, party: Party, target: str, topic: str
) -> None:
    values = produce(target, topic, 60)
    with party:
        java = party.join_java(requires_kafka)
        party.wait_read(values)
        other = party.join("confluent")
        party.wait_shared(PARTITIONS, java, other)
        party.wait_read(produce(target, topic, 60, first=60))
        java.leave()
        party.wait_shared(PARTITIONS, other)
        party.wait_read(produce(target, topic, 60, first=120))


def test_two_groups_each_get_everything(target: str, topic: str) -> None:
    values = produce(target, topic, 60)
    with Party(target, topic, f"{topic}-a") as one, Party(target, topic, f"{topic}-b") as two:
        one.join("confluent")
        two.join("aiokafka")
        one.wait_read(values)
        two.wait_read(values)


def test_members_beyond_the_partitions_wait_for_a_place(target: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic("narrow", partitions=1)
    with Party(target, topic, f"{topic}-group") as party:
        first, second = party.join("confluent"), party.join("confluent")
        party.wait_until(lambda: first.assignments + second.assignments >= 2, "both to be assigned")
        party.wait_until(lambda: len(first.owned) + len(second.owned) == 1, "one of them to own it")
        busy, idle = (first, second) if first.owned else (second, first)
        busy.leave()
        party.wait_shared(1, idle)


# ---- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_member_is_replaced_and_nothing_is_lost(
    party: Party, target: str, topic: str, kind: str
) -> None:
    with party:
        victim, survivor = party.join(kind), party.join("confluent")
        party.wait_shared(PARTITIONS)
        values = produce(target, topic, 60)
        party.wait_read(values)
        victim.kill()
        values = produce(target, topic, 60, first=60)
        party.wait_shared(PARTITIONS, survivor)
        party.wait_read(values)


def test_a_member_paused_past_its_session_is_replaced_and_comes_back(
    party: Party, target: str, topic: str
) -> None:
    with party:
        sleeper, survivor = party.join("confluent"), party.join("kafka-python")
        party.wait_shared(PARTITIONS)
        sleeper.pause()
        values = produce(target, topic, 60)
        party.wait_until(lambda: len(survivor.owned) == PARTITIONS, "the other to own everything")
        party.wait_read(values)
        sleeper.resume()
        party.wait_until(lambda: 0 < len(survivor.owned) < PARTITIONS, "the sleeper to come back")
        party.wait_shared(PARTITIONS)
        party.wait_read(produce(target, topic, 60, first=60))


# ---- protocols ----------------------------------------------------------------------------------------------


def test_a_cooperative_hand_over_moves_only_what_must_move(party: Party, target: str, topic: str) -> None:
    with party:
        first = party.join("confluent", assignor="cooperative-sticky")
        party.wait_shared(PARTITIONS, first)
        second = party.join("confluent", assignor="cooperative-sticky")
        party.wait_shared(PARTITIONS, first, second)
        assert len(first.owned) == len(second.owned) == PARTITIONS // 2
        party.wait_read(produce(target, topic, 60))
        assert sum(len(member.messages) for member in party.members) == 60
        second.leave()
        party.wait_shared(PARTITIONS, first)


def test_a_static_member_that_restarts_keeps_its_partitions(party: Party, target: str, topic: str) -> None:
    with party:
        other = party.join("confluent", instance="other")
        first = party.join("confluent", instance="one")
        party.wait_shared(PARTITIONS)
        kept, assignments = set(first.owned), other.assignments
        first.kill()
        again = party.join("confluent", instance="one")
        party.wait_shared(PARTITIONS, other, again)
        assert again.owned == kept
        assert other.assignments == assignments, "the others had to rebalance"


def test_a_second_instance_fences_the_first(party: Party, topic: str) -> None:
    with party:
        first = party.join("confluent", instance="one")
        party.wait_shared(PARTITIONS, first)
        second = party.join("confluent", instance="one")
        party.wait_until(lambda: second.owned == set(range(PARTITIONS)), "the second to take over")
        party.wait_until(lambda: first.process.poll() is not None, "the first to give up")
        assert first.failures == ["_FATAL"]


def test_new_partitions_are_shared_out(party: Party, target: str, topic: str) -> None:
    from confluent_kafka.admin import NewPartitions

    with party:
        party.join("confluent")
        party.join("confluent")
        party.wait_shared(PARTITIONS)
        admin = AdminClient({"bootstrap.servers": target})
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(30)
        party.wait_shared(PARTITIONS + 2)


# ---- what a group leaves ------------------------------------------------------------------------------------


def test_a_group_and_its_offsets_can_be_seen_and_deleted(party: Party, target: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": target})
    group = f"{topic}-group"
    with party:
        member = party.join("aiokafka")
        party.wait_read(produce(target, topic, 6))
        description = admin.describe_consumer_groups([group])[group].result(30)
        assert description.state is ConsumerGroupState.STABLE
        (shown,) = description.members
        assert len(shown.assignment.topic_partitions) == PARTITIONS
        member.leave()
    admin.delete_consumer_groups([group])[group].result(30)
    assert committed(target, group, topic) == [-1001] * PARTITIONS


def test_a_deleted_topic_takes_its_offsets_along(
    party: Party, target: str, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka.admin import NewTopic

    topic = new_topic("short-lived", partitions=PARTITIONS)
    with Party(target, topic, f"{topic}-group") as readers:
        reader = readers.join("confluent")
        readers.wait_read(produce(target, topic, 6))
        reader.leave()
    admin = AdminClient({"bootstrap.servers": target})
    admin.delete_topics([topic])[topic].result(30)
    party.wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    assert committed(target, f"{topic}-group", topic) == [-1001] * PARTITIONS
