"""Where replicas are moved to: evenly, few, over racks."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.partition_health import PartitionView
from moldau.cli.reassign_plan import NotEnoughBrokers, Replicas, drain, place_of, spread

NO_RACKS: dict[int, str | None] = dict.fromkeys(range(1, 6))
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def topic(name: str, *replicas: Replicas) -> list[PartitionView]:
    return [PartitionView(name, index, ids[0], ids, ids) for index, ids in enumerate(replicas)]


def ring(name: str, partitions: int, brokers: int, copies: int) -> list[PartitionView]:
    return topic(
        name,
        *(tuple((index + step) % brokers + 1 for step in range(copies)) for index in range(partitions)),
    )


def after(
    partitions: list[PartitionView], plan: dict[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    return {place_of(partition): partition.replicas for partition in partitions} | plan


def load(assignment: dict[TopicPartition, Replicas]) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def moves(partitions: list[PartitionView], plan: dict[TopicPartition, Replicas]) -> int:
    before = {place_of(partition): partition.replicas for partition in partitions}
    return sum(len(set(replicas) - set(before[place])) for place, replicas in plan.items())


def test_what_is_even_stays_as_it_is() -> None:
    partitions = ring("orders", 15, 5, 3)
    assert spread(partitions, ["orders"], NO_RACKS) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    partitions = ring("orders", 12, 3, 3)
    plan = spread(partitions, ["orders"], dict.fromkeys((1, 2, 3, 4)))
    assert load(after(partitions, plan)) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert moves(partitions, plan) == 9


def test_many_topics_of_one_partition_are_even_too() -> None:
    partitions = [one for number in range(30) for one in topic(f"topic-{number:02}", (1, 2, 3))]
    plan = spread(partitions, {one.topic for one in partitions}, NO_RACKS)
    assert load(after(partitions, plan)) == dict.fromkeys(range(1, 6), 18)
    assert moves(partitions, plan) == 36
    leads = Counter(replicas[0] for replicas in after(partitions, plan).values())
    assert max(leads.values()) - min(leads[number] for number in range(1, 6)) <= 3


def test_only_the_topics_that_were_asked_for_move() -> None:
    partitions = topic("orders", (1, 2), (1, 2), (1, 2)) + topic("other", (1, 2), (1, 2))
    plan = spread(partitions, ["orders"], {3: None, 4: None})
    assert {place.topic for place in plan} == {"orders"}
    assert all(set(replicas) == {3, 4} for replicas in plan.values())


def test_copies_can_become_more_or_fewer_and_the_leader_stays() -> None:
    partitions = topic("orders", (1, 2), (2, 3))
    more = spread(partitions, ["orders"], {1: None, 2: None, 3: None}, copies=3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in more.values()) and len(more) == 2
    fewer = spread(topic("orders", (1, 2, 3), (2, 3, 1)), ["orders"], {1: None, 2: None, 3: None}, copies=1)
    assert {len(replicas) for replicas in fewer.values()} == {1}


def test_a_drained_broker_has_nothing_and_the_others_share_it_evenly() -> None:
    partitions = ring("orders", 20, 5, 3)
    plan = drain(partitions, 5, NO_RACKS)
    result = load(after(partitions, plan))
    assert result[5] == 0 and max(result.values()) - min(result[number] for number in (1, 2, 3, 4)) <= 1
    assert moves(partitions, plan) == 12, "one for each replica that was there"


def test_replicas_stay_in_different_racks() -> None:
    partitions = topic("orders", *[(1, 2, 3)] * 6)
    for plan in (spread(partitions, ["orders"], RACKS), drain(partitions, 3, RACKS)):
        assert plan
        for replicas in after(partitions, plan).values():
            assert len({RACKS[broker] for broker in replicas}) == 3


def test_preferred_leaders_of_what_moves_are_even() -> None:
    partitions = topic("orders", *[(1, 2)] * 12)
    plan = spread(partitions, ["orders"], {3: None, 4: None, 5: None})
    leads = Counter(replicas[0] for replicas in plan.values())
    assert leads == {3: 4, 4: 4, 5: 4}


def test_too_few_brokers_are_said_so() -> None:
    with pytest.raises(NotEnoughBrokers) as error:
        drain(ring("orders", 3, 3, 3), 3, dict.fromkeys((1, 2, 3)))
    assert (error.value.wanted, error.value.brokers) == (3, [1, 2])


def test_ten_thousand_partitions_are_planned_in_seconds() -> None:
    partitions = ring("orders", 10_000, 4, 3)
    begun = time.monotonic()
    plan = spread(partitions, ["orders"], NO_RACKS)
    assert time.monotonic() - begun < 10
    result = load(after(partitions, plan))
    assert max(result.values()) - min(result.values()) <= 1 and moves(partitions, plan) == 6_000
