"""Reassignments: begun, replaced, cancelled, ended; with Kafka's answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Target
from moldau.controller.reassignments import (
    Ongoing,
    Reassigned,
    Reassignment,
    decide_reassignments,
    list_reassignments,
)
from moldau.controller.slices import whole
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionState

from .small_cluster import cluster, rules, state_after

HERE = TopicPartition("t", 0)
STATE = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2), isr=(1, 2), partition_epoch=9)


def after(state: PartitionState, bumps: int, **fields: Any) -> PartitionState:
    return state._replace(
        leader_epoch=state.leader_epoch + bumps, partition_epoch=state.partition_epoch + 1, **fields
    )


MOVING = after(STATE, 0, replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2))


def reassign(image: ClusterImage, replicas: Sequence[int] | None, **options: Any) -> Reassigned:
    outcomes, records = whole(decide_reassignments(image, rules(), [Reassignment(HERE, replicas)], **options))
    for record in records:
        image.apply(record)
    (outcome,) = outcomes
    assert bool(outcome.error) <= (not records)
    return outcome


def in_sync(image: ClusterImage, *isr: int) -> PartitionState:
    """The leader reports this set."""
    changes = Changes(image, rules())
    changes.change(image.topics["t"], 0, Target(isr=isr))
    return state_after(image, changes.records())


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ((3, 4), MOVING),
        ((1, 2), STATE),
        ((2, 1), after(STATE, 0, replicas=(2, 1))),
        ((1, 2, 3), after(STATE, 0, replicas=(1, 2, 3), adding=(3,))),
        ((1,), after(STATE, 1, replicas=(1,), isr=(1,))),
        ((2,), after(STATE, 1, leader=2, replicas=(2,), isr=(2,))),
        ((3, 1), after(STATE, 0, replicas=(3, 1, 2), adding=(3,), removing=(2,))),
    ],
)
def test_a_reassignment_begins_and_ends_at_once_where_it_can(
    replicas: tuple[int, ...], expected: PartitionState
) -> None:
    image = cluster(STATE)
    assert reassign(image, replicas).error is ErrorCode.none
    assert image.topics["t"].partitions[0] == expected


def test_it_ends_when_all_who_come_are_in_sync() -> None:
    image = cluster(STATE)
    reassign(image, (3, 4))
    assert in_sync(image, 1, 2, 3).removing == (1, 2)
    done = in_sync(image, 1, 2, 3, 4)
    assert (done.leader, done.replicas, done.isr, done.adding, done.removing) == (3, (3, 4), (3, 4), (), ())


def test_cancelled_it_is_as_it_was() -> None:
    image = cluster(STATE)
    reassign(image, (3, 4))
    in_sync(image, 1, 2, 3)
    assert reassign(image, None).error is ErrorCode.none
    state = image.topics["t"].partitions[0]
    assert (state.leader, state.replicas, state.isr, state.adding, state.removing) == (
        1,
        (1, 2),
        (1, 2),
        (),
        (),
    )


def test_replaced_and_then_cancelled_it_is_as_it_was_at_first() -> None:
    image = cluster(STATE)
    reassign(image, (3, 4))
    reassign(image, (3, 2))
    state = image.topics["t"].partitions[0]
    assert (state.replicas, state.adding, state.removing) == ((3, 2, 1, 4), (3, 4), (1, 4))
    assert reassign(image, None).error is ErrorCode.none
    assert set(image.topics["t"].partitions[0].replicas) == {1, 2}
    assert list_reassignments(image) == []


def test_the_same_reassignment_again_changes_nothing() -> None:
    image = cluster(STATE)
    reassign(image, (3, 4))
    before = image.topics["t"].partitions[0]
    reassign(image, (3, 4))
    assert image.topics["t"].partitions[0] == before


@pytest.mark.parametrize(
    ("place", "replicas", "options", "code", "message"),
    [
        (
            TopicPartition("u", 0),
            (1,),
            {},
            ErrorCode.unknown_topic_or_partition,
            "Unable to find a topic named u.",
        ),
        (
            TopicPartition("t", 7),
            (1,),
            {},
            ErrorCode.unknown_topic_or_partition,
            "Unable to find partition t:7.",
        ),
        (
            HERE,
            None,
            {},
            ErrorCode.no_reassignment_in_progress,
            None,
        ),
        (
            HERE,
            (),
            {},
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            HERE,
            (9,),
            {},
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            HERE,
            (1, 2, 3),
            {"may_change_factor": False},
            ErrorCode.invalid_replication_factor,
            "The replication factor is changed from 2 to 3",
        ),
    ],
)
def test_a_reassignment_that_cannot_be(
    place: TopicPartition,
    replicas: tuple[int, ...] | None,
    options: dict[str, Any],
    code: ErrorCode,
    message: str,
) -> None:
    outcomes, records = whole(
        decide_reassignments(cluster(STATE), rules(), [Reassignment(place, replicas)], **options)
    )
    assert (outcomes, records) == ([Reassigned(place, code, message)], [])


def test_a_factor_may_stay_the_same_while_a_reassignment_is_replaced() -> None:
    image = cluster(MOVING)
    assert reassign(image, (2, 3), may_change_factor=False).error is ErrorCode.none


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_it_is_not_cancelled_where_only_those_who_come_are_in_sync(unclean: str) -> None:
    image = cluster(MOVING._replace(leader=3, isr=(3,)), unclean_leader_election_enable=unclean)
    outcome = reassign(image, None)
    if unclean == "true":
        assert outcome.error is ErrorCode.none
        assert image.topics["t"].partitions[0].isr == (1,)
    else:
        assert (outcome.error, outcome.message) == (
            ErrorCode.invalid_replica_assignment,
            "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
        )


def test_those_under_way_are_listed_whole_or_by_name() -> None:
    image = cluster(STATE, MOVING)
    ongoing = Ongoing(TopicPartition("t", 1), (3, 4, 1, 2), (3, 4), (1, 2))
    assert list_reassignments(image) == [ongoing]
    assert list_reassignments(image, {"t": [0, 1, 7], "u": [0]}) == [ongoing]
    assert list_reassignments(image, {"t": [0]}) == []
