"""A leader's proposal of another in-sync set is checked in every way in which it may be old."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.controller.alter_partition import Altered, InSync, Proposal, decide_alter_partition
from moldau.controller.changes import Changes
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerChanged, PartitionState

from .small_cluster import TOPIC, cluster, rules

STATE = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2, 3), isr=(1, 2), partition_epoch=9)


def members(*ids: int, epoch_of: int = 0) -> list[InSync]:
    return [InSync(id_, id_ * 10 + (1 if id_ == epoch_of else 0)) for id_ in ids]


def proposal(*ids: int, **fields: Any) -> Proposal:
    return Proposal(TOPIC, 0, 4, 9, members(*ids))._replace(**fields)


def decide(image: ClusterImage, one: Proposal, broker_id: int = 1, **settings: str) -> Altered:
    changes = Changes(image, rules(**settings))
    (altered,) = decide_alter_partition(image, changes, broker_id, [one])
    assert bool(changes.records()) == (altered.error in (ErrorCode.none, ErrorCode.new_leader_elected))
    return altered


@pytest.mark.parametrize(
    ("one", "broker_id", "error"),
    [
        (proposal(1, topic_id=UUID(int=1)), 1, ErrorCode.unknown_topic_id),
        (proposal(1, partition=1), 1, ErrorCode.unknown_topic_or_partition),
        (proposal(1, partition=-1), 1, ErrorCode.unknown_topic_or_partition),
        (proposal(1, leader_epoch=5), 1, ErrorCode.not_controller),
        (proposal(1, partition_epoch=10), 1, ErrorCode.not_controller),
        (proposal(1, leader_epoch=3), 1, ErrorCode.fenced_leader_epoch),
        (proposal(2), 2, ErrorCode.invalid_request),
        (proposal(1, partition_epoch=8), 1, ErrorCode.invalid_update_version),
        (proposal(1, 4), 1, ErrorCode.invalid_request),
        (proposal(1, 1), 1, ErrorCode.invalid_request),
        (proposal(2, 3), 1, ErrorCode.invalid_request),
        (proposal(), 1, ErrorCode.invalid_request),
        (proposal(1, recovering=True), 1, ErrorCode.invalid_request),
        (proposal(isr=members(1, 3, epoch_of=3)), 1, ErrorCode.ineligible_replica),
    ],
    ids=str,
)
def test_a_proposal_that_is_out_of_date_is_refused(one: Proposal, broker_id: int, error: ErrorCode) -> None:
    assert decide(cluster(STATE), one, broker_id) == Altered(one.topic_id, one.partition, error)


@pytest.mark.parametrize("change", ["fenced", "shuts down", "unregistered", "disk failed"])
def test_who_cannot_lead_does_not_enter_the_set(change: str) -> None:
    image = cluster(STATE._replace(offline=(3,) if change == "disk failed" else ()))
    if change == "unregistered":
        image.registered.pop(3)
    elif change != "disk failed":
        image.apply(BrokerChanged(3, 30, change == "fenced", change == "shuts down"))
    assert decide(image, proposal(1, 2, 3)).error is ErrorCode.ineligible_replica


def test_the_set_grows_and_shrinks_within_a_leader_epoch() -> None:
    image = cluster(STATE)
    assert decide(image, proposal(1, 2, 3)).state == STATE._replace(isr=(1, 2, 3), partition_epoch=10)
    assert decide(image, proposal(1), min_insync_replicas="2").state == STATE._replace(
        isr=(1,), elr=(2,), partition_epoch=10
    )
    unchecked = proposal(isr=[InSync(1), InSync(2), InSync(3)])
    assert decide(image, unchecked).error is ErrorCode.none


def test_a_set_as_it_is_changes_nothing_and_is_answered() -> None:
    image = cluster(STATE)
    changes = Changes(image, rules())
    (altered,) = decide_alter_partition(image, changes, 1, [proposal(1, 2)])
    assert (altered.error, altered.state) == (ErrorCode.none, STATE)
    assert changes.records() == []


def test_of_two_proposals_for_one_partition_the_second_is_out_of_date() -> None:
    image = cluster(STATE)
    changes = Changes(image, rules())
    first, second = decide_alter_partition(image, changes, 1, [proposal(1, 2, 3), proposal(1)])
    assert (first.error, second.error) == (ErrorCode.none, ErrorCode.invalid_update_version)
    (record,) = changes.records()
    assert record.states == {0: STATE._replace(isr=(1, 2, 3), partition_epoch=10)}


def test_a_leader_that_completes_its_own_replacement_hears_of_it() -> None:
    moving = STATE._replace(replicas=(2, 3, 1), adding=(3,), removing=(1,))
    altered = decide(cluster(moving), proposal(1, 2, 3))
    assert (altered.error, altered.state) == (ErrorCode.new_leader_elected, None)


def test_a_leader_ends_its_recovery_alone_and_then_lets_others_in() -> None:
    recovering = STATE._replace(isr=(1,), recovering=True)
    image = cluster(recovering)
    assert decide(image, proposal(1, 2, recovering=True)).error is ErrorCode.invalid_request
    assert decide(image, proposal(1)).state == recovering._replace(recovering=False, partition_epoch=10)
