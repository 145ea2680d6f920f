"""The coordinator's assignors: the results are Kafka's where it can be told, balanced and steady everywhere."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from moldau.coordinator.group.consumer.records import Target
from moldau.coordinator.java import java_order

T, U, V = UUID(int=1), UUID(int=2), UUID(int=3)


def member(*topics: UUID, target: Target | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(instance_id, frozenset(topics), target or {})


def test_range_gives_equal_numbers_of_two_topics_to_one_member() -> None:
    members = {"a": member(T, U), "b": member(T, U)}
    assert assign_range(members, {T: 4, U: 4}) == {
        "a": {T: (0, 1), U: (0, 1)},
        "b": {T: (2, 3), U: (2, 3)},
    }


def test_range_gives_odd_partitions_to_the_first_members_and_static_ones_come_first() -> None:
    members = {"a": member(T), "b": member(T, instance_id="z"), "c": member(T, instance_id="y")}
    assert assign_range(members, {T: 5}) == {"a": {T: (4,)}, "b": {T: (2, 3)}, "c": {T: (0, 1)}}


def test_range_counts_only_those_who_read_a_topic() -> None:
    members = {"a": member(T), "b": member(U), "c": member(T, U)}
    assert assign_range(members, {T: 2, U: 1}) == {"a": {T: (0,)}, "b": {U: (0,)}, "c": {T: (1,)}}


def test_uniform_moves_only_what_it_must() -> None:
    before = assign_uniform({"a": member(T)}, {T: 4})
    members = {"a": member(T, target=before["a"]), "b": member(T)}
    assert assign_uniform(members, {T: 4}) == {"a": {T: (0, 1)}, "b": {T: (2, 3)}}


def test_uniform_takes_back_what_is_not_there_any_more() -> None:
    members = {"a": member(T, target={T: (0, 1, 2), U: (0,)})}
    assert assign_uniform(members, {T: 2}) == {"a": {T: (0, 1)}}


def test_nobody_gets_anything_of_what_is_not_there() -> None:
    for assign in ASSIGNORS.values():
        assert assign({"a": member(T), "b": member()}, {}) == {"a": {}, "b": {}}
        assert assign({}, {}) == {}


def test_names_come_in_the_order_of_javas_hash_tables() -> None:
    # As `new HashSet<>(List.of(...))` prints them.
    assert java_order(["one", "two", "three", "four"]) == ["four", "one", "two", "three"]


topics = st.sets(st.sampled_from([T, U, V]))
groups = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), topics, min_size=1, max_size=7)
counts = st.fixed_dictionaries({T: st.integers(1, 6), U: st.integers(1, 6), V: st.integers(1, 6)})


def places(target: Target) -> set[tuple[UUID, int]]:
    return {(topic, partition) for topic, partitions in target.items() for partition in partitions}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(groups, groups, counts)
def test_every_partition_that_is_read_has_one_reader_whoever_comes_and_goes(
    name: str, first: dict[str, set[UUID]], then: dict[str, set[UUID]], numbers: dict[UUID, int]
) -> None:
    targets: dict[str, Target] = {}
    for group in (first, then):
        read = {topic: numbers[topic] for topic in (T, U, V) if any(topic in one for one in group.values())}
        members = {one: member(*group[one], target=targets.get(one)) for one in group}
        targets = ASSIGNORS[name](members, read)
        given_out = [place for one in group for place in places(targets[one])]
        assert sorted(given_out, key=str) == sorted(
            ((topic, partition) for topic, count in read.items() for partition in range(count)), key=str
        )
        for one in group:
            assert set(targets[one]) <= group[one]


@given(groups, groups, counts)
def test_uniform_is_even_and_steady(
    first: dict[str, set[UUID]], then: dict[str, set[UUID]], numbers: dict[UUID, int]
) -> None:
    """Among members that read the same, nobody has two more than another; a second look changes nothing."""
    targets: dict[str, Target] = {}
    for group in (first, then, then):
        before = targets
        read = {topic: numbers[topic] for topic in (T, U, V) if any(topic in one for one in group.values())}
        members = {one: member(*group[one], target=before.get(one)) for one in group}
        targets = assign_uniform(members, read)
        for wanted in ({T}, {U}, {V}, {T, U}, {T, V}, {U, V}, {T, U, V}):
            sizes = sorted(len(places(targets[one])) for one in group if group[one] == wanted)
            assert all(high - low <= 1 for low, high in pairwise([*sizes[:1], *sizes[-1:]]))
    assert targets == before


class Counted(dict[str, MemberSpec]):
    """Members that know how often one of them was looked at."""

    looks = 0

    def __getitem__(self, member_id: str) -> MemberSpec:
        self.looks += 1
        return super().__getitem__(member_id)


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("kinds", [1, 3])
def test_members_are_not_looked_at_again_for_each_topic(name: str, kinds: int) -> None:
    counts = {UUID(int=number): 1 for number in range(300)}
    subscriptions = [frozenset(list(counts)[kind:]) for kind in range(kinds)]
    members = Counted(
        {f"m{number}": MemberSpec(None, subscriptions[number % kinds], {}) for number in range(300)}
    )
    assigned = ASSIGNORS[name](members, counts)

    assert sum(len(target) for target in assigned.values()) == len(counts)
    assert members.looks <= 3 * len(members)
