"""ElectLeaders and the rebalance, with Kafka's answers."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.controller.leaders import Elected, Election, decide_elections, decide_rebalance
from moldau.controller.slices import whole
from moldau.metadata.records import NO_LEADER, PartitionState

from .small_cluster import changed_states, cluster, rules

WELL = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9)
AWAY = WELL._replace(leader=2)
BEHIND = WELL._replace(leader=2, isr=(2, 3))
LOST = WELL._replace(leader=NO_LEADER, isr=(), elr=(1,))
PREFERRED, UNCLEAN = Election.PREFERRED, Election.UNCLEAN


def at(index: int) -> TopicPartition:
    return TopicPartition("t", index)


@pytest.mark.parametrize(
    ("election", "index", "fenced", "code", "message", "leader"),
    [
        (
            PREFERRED,
            0,
            (),
            ErrorCode.election_not_needed,
            "Leader election not needed for topic partition.",
            None,
        ),
        (PREFERRED, 1, (), ErrorCode.none, None, 1),
        (
            PREFERRED,
            2,
            (),
            ErrorCode.preferred_leader_not_available,
            "The preferred leader was not available.",
            None,
        ),
        (
            UNCLEAN,
            1,
            (),
            ErrorCode.election_not_needed,
            "Leader election not needed for topic partition.",
            None,
        ),
        (UNCLEAN, 3, (1,), ErrorCode.none, None, 2),
        (UNCLEAN, 3, (), ErrorCode.none, None, 1),
        (
            UNCLEAN,
            3,
            (1, 2, 3),
            ErrorCode.eligible_leaders_not_available,
            "Eligible topic partition leaders are not available.",
            None,
        ),
        (
            PREFERRED,
            3,
            (1,),
            ErrorCode.preferred_leader_not_available,
            "The preferred leader was not available.",
            None,
        ),
        (PREFERRED, 4, (), ErrorCode.unknown_topic_or_partition, "No such partition as t-4", None),
    ],
)
def test_an_election_that_is_asked_for(
    election: Election,
    index: int,
    fenced: tuple[int, ...],
    code: ErrorCode,
    message: str | None,
    leader: int | None,
) -> None:
    image = cluster(WELL, AWAY, BEHIND, LOST, fenced=fenced)
    outcomes, records = whole(decide_elections(image, rules(), election, [at(index)]))
    assert outcomes == [Elected(at(index), code, message)]
    states = changed_states([*records])
    assert {number: state.leader for number, state in states.items()} == (
        {} if leader is None else {index: leader}
    )


def test_an_unclean_election_of_one_that_has_everything_is_clean() -> None:
    image = cluster(LOST)
    (record,) = whole(decide_elections(image, rules(), UNCLEAN, None)).records
    assert (record.states[0].isr, record.states[0].recovering) == ((1,), False)
    image = cluster(LOST, fenced=(1,))
    (record,) = whole(decide_elections(image, rules(), UNCLEAN, None)).records
    assert (record.states[0].isr, record.states[0].recovering) == ((2,), True)


def test_of_all_partitions_those_that_need_no_election_are_not_named() -> None:
    image = cluster(WELL, AWAY, BEHIND, WELL)
    outcomes, records = whole(decide_elections(image, rules(), PREFERRED, None))
    assert [(outcome.place, outcome.error) for outcome in outcomes] == [
        (at(1), ErrorCode.none),
        (at(2), ErrorCode.preferred_leader_not_available),
    ]
    assert set(changed_states([*records])) == {1}


def test_a_partition_named_twice_is_elected_once() -> None:
    image = cluster(AWAY)
    outcomes, _ = whole(decide_elections(image, rules(), PREFERRED, [at(0), at(0)]))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.none, ErrorCode.election_not_needed]


@pytest.mark.parametrize(("away", "moved"), [(0, 0), (1, 0), (2, 2), (10, 10)])
def test_leaders_go_back_where_a_broker_leads_too_few_of_its_own(away: int, moved: int) -> None:
    image = cluster(*[AWAY] * away, *[WELL] * (10 - away))
    states = changed_states([*whole(decide_rebalance(image, rules()))])
    assert len(states) == moved
    assert all(state.leader == 1 for state in states.values())


def test_leaders_do_not_go_back_to_one_that_is_behind_or_fenced() -> None:
    assert whole(decide_rebalance(cluster(BEHIND), rules())) == []
    assert whole(decide_rebalance(cluster(AWAY, fenced=(1,)), rules())) == []
