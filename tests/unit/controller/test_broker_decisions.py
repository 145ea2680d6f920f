"""Brokers come, are fenced, serve, shut down and go; what that does to partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.controller.brokers import (
    Next,
    Registration,
    check_epoch,
    decide_fence,
    decide_leaderless,
    decide_register,
    decide_replicas,
    decide_shut_down,
    decide_unfence,
    decide_unregister,
    next_state,
)
from moldau.controller.leaders import Election, decide_elections, decide_rebalance
from moldau.controller.slices import PARTITIONS_PER_SLICE, Slices, whole
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    NO_LEADER,
    BrokerChanged,
    BrokerRegistered,
    PartitionsChanged,
    PartitionState,
    Record,
)

from .small_cluster import broker, changed_states, cluster, incarnation, rules, state_after

FULL = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9)
ALONE = PartitionState(leader=1, leader_epoch=4, replicas=(1,), isr=(1,), partition_epoch=9)
LAST = FULL._replace(isr=(1,))
NEW = UUID(int=999)
HERE = TopicPartition("t", 0)


def after(state: PartitionState, bumps: int, **fields: Any) -> PartitionState:
    return state._replace(
        leader_epoch=state.leader_epoch + bumps, partition_epoch=state.partition_epoch + 1, **fields
    )


def registration(broker_id: int = 1, **fields: Any) -> Registration:
    return Registration(broker_id, NEW, {}, boot_id="boot")._replace(**fields)


def register(image: ClusterImage, wanted: Registration, **settings: str) -> list[Record]:
    return whole(decide_register(image, rules(**settings), wanted)).records


CLEAN: dict[str, Any] = {"previous_epoch": 10}
KILLED: dict[str, Any] = {}
POWER_CUT = {"boot_id": "another"}
UNKNOWN_LIFE = {"previous_epoch": 9, "boot_id": "another"}
EMPTIED = {"lost": [HERE]}
MISSING = {**CLEAN, "lost": [HERE]}
DISK = (UUID(int=70),)
NEW_DISK = {**EMPTIED, "log_dirs": (UUID(int=77),)}


@pytest.mark.parametrize(
    ("what", "state", "came", "min_isr", "expected"),
    [
        ("it is out of sync for others to lead", FULL, CLEAN, 2, after(FULL, 1, leader=2, isr=(2, 3))),
        ("whatever has happened to it", FULL, POWER_CUT, 2, after(FULL, 1, leader=2, isr=(2, 3))),
        (
            "a follower leaves the set only",
            FULL._replace(leader=2),
            KILLED,
            2,
            after(FULL._replace(leader=2), 0, isr=(2, 3)),
        ),
        (
            "it stays eligible where the page cache has outlived it",
            FULL._replace(leader=2, isr=(1, 2)),
            KILLED,
            2,
            after(FULL, 0, leader=2, isr=(2,), elr=(1,)),
        ),
        (
            "not after a power cut",
            FULL._replace(leader=2, isr=(1, 2)),
            POWER_CUT,
            2,
            after(FULL, 0, leader=2, isr=(2,), elr=()),
        ),
        (
            "not after a clean stop of a life that never registered",
            FULL._replace(leader=2, isr=(1, 2)),
            UNKNOWN_LIFE,
            2,
            after(FULL, 0, leader=2, isr=(2,), elr=()),
        ),
        (
            "not with an emptied folder",
            FULL._replace(leader=2, isr=(1, 2)),
            EMPTIED,
            2,
            after(FULL, 0, leader=2, isr=(2,), elr=()),
        ),
        (
            "an eligible one that was cut off is eligible no longer",
            FULL._replace(leader=2, isr=(2,), elr=(3, 1)),
            POWER_CUT,
            2,
            after(FULL, 0, leader=2, isr=(2,), elr=(3,)),
        ),
        (
            "an eligible one that was only killed stays so",
            FULL._replace(leader=2, isr=(2,), elr=(3, 1)),
            KILLED,
            2,
            None,
        ),
        ("the only one goes on after a clean stop", ALONE, CLEAN, 1, None),
        ("on another boot, too", ALONE, {**CLEAN, "boot_id": "another"}, 1, None),
        ("in a new epoch after a crash", ALONE, KILLED, 1, after(ALONE, 1)),
        ("and after a power cut", ALONE, POWER_CUT, 1, after(ALONE, 1)),
        ("and where its log is gone", ALONE, MISSING, 1, after(ALONE, 1)),
        ("the last in sync goes on, too", LAST, POWER_CUT, 1, after(LAST, 1)),
        ("or a log that was never made", LAST, EMPTIED, 1, after(LAST, 1)),
        ("or one whose disk may come back", LAST, {**EMPTIED, "log_dirs": ()}, 1, after(LAST, 1)),
        ("with one replica there is no choice", ALONE, NEW_DISK, 1, after(ALONE, 1)),
        (
            "not with another disk: others have more",
            LAST,
            NEW_DISK,
            1,
            after(LAST, 1, leader=NO_LEADER, isr=(), elr=(), last_known_elr=(2, 3)),
        ),
        (
            "nor is it the one to begin with where nobody has everything",
            FULL._replace(leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
            NEW_DISK,
            2,
            after(FULL, 0, leader=NO_LEADER, isr=(), elr=(), last_known_elr=(2, 3)),
        ),
        (
            "but not where another is eligible",
            FULL._replace(isr=(1,), elr=(3,)),
            POWER_CUT,
            2,
            after(FULL, 1, leader=3, isr=(3,), elr=()),
        ),
        (
            "the last eligible one stays eligible",
            FULL._replace(leader=NO_LEADER, isr=(), elr=(1,)),
            POWER_CUT,
            2,
            None,
        ),
        (
            "a disk that had failed may serve again",
            FULL._replace(leader=2, isr=(2, 3), offline=(1,)),
            CLEAN,
            2,
            after(FULL, 0, leader=2, isr=(2, 3), offline=()),
        ),
        (
            "a partition elsewhere is left alone",
            FULL._replace(replicas=(2, 3), isr=(2, 3), leader=2),
            POWER_CUT,
            2,
            None,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broker_that_comes_back(
    what: str,
    state: PartitionState,
    came: dict[str, Any],
    min_isr: int,
    expected: PartitionState | None,
) -> None:
    image = cluster(state, fenced=() if state.leader == 1 else (1,))
    image.apply(BrokerRegistered(image.registered[1]._replace(log_dirs=DISK)))
    records = register(image, registration(**{"log_dirs": DISK} | came), min_insync_replicas=str(min_isr))
    assert changed_states(records).get(0) == expected, what
    assert state_after(image, records) == (expected or state)


def test_a_registration_is_fenced_and_has_an_epoch_that_none_had() -> None:
    image = cluster()
    registered = whole(decide_register(image, rules(), registration(rack="r", log_dirs=(UUID(int=5),))))
    assert registered.epoch == 51
    last = registered.records[-1]
    assert isinstance(last, BrokerRegistered)
    assert last.broker == broker(
        1, listeners={}, rack="r", log_dirs=(UUID(int=5),), epoch=51, incarnation=NEW, is_fenced=True
    )


def test_the_same_life_of_a_broker_may_register_again_and_keeps_its_epoch() -> None:
    image = cluster(FULL)
    same = registration(incarnation=incarnation(1), listeners={"A": ("h", 1)})
    registered = whole(decide_register(image, rules(), same))
    assert registered.epoch == 10
    assert registered.records == [BrokerRegistered(broker(1, listeners={"A": ("h", 1)}))]


@pytest.mark.parametrize(
    ("wanted", "live", "code"),
    [
        (registration(), incarnation(1), ErrorCode.duplicate_broker_registration),
        (registration(cluster_id="another"), None, ErrorCode.inconsistent_cluster_id),
        (registration(log_dirs=(UUID(int=5),) * 2), None, ErrorCode.invalid_registration),
        (registration(log_dirs=(UUID(int=6),)), None, ErrorCode.invalid_registration),
    ],
)
def test_a_broker_that_cannot_be_the_one_is_refused(
    wanted: Registration, live: UUID | None, code: ErrorCode
) -> None:
    image = cluster()
    image.apply(BrokerRegistered(broker(2, log_dirs=(UUID(int=6),))))
    with pytest.raises(KafkaError) as refused:
        whole(decide_register(image, rules(), wanted, live))
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("state", "min_isr", "expected"),
    [
        (FULL, 2, after(FULL, 1, leader=2, isr=(2, 3))),
        (FULL._replace(leader=3), 2, after(FULL, 0, leader=3, isr=(2, 3))),
        (FULL, 3, after(FULL, 1, leader=2, isr=(2, 3), elr=(1,))),
        (ALONE, 1, after(ALONE, 1, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,))),
        (LAST, 2, after(LAST, 1, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,))),
        (
            LAST._replace(elr=(2,)),
            2,
            after(LAST, 1, leader=2, isr=(2,), elr=(1,)),
        ),
    ],
)
def test_a_broker_that_is_gone_leads_nothing_and_is_in_no_set(
    state: PartitionState, min_isr: int, expected: PartitionState
) -> None:
    image = cluster(state)
    records = whole(decide_fence(image, rules(min_insync_replicas=str(min_isr)), (1,)))
    assert records[-1] == BrokerChanged(1, 10, is_fenced=True, is_shutting_down=False)
    assert state_after(image, records) == expected


def test_a_broker_that_is_fenced_has_shut_down_and_is_told_to_go_if_it_asks_again() -> None:
    image = cluster(FULL)
    state_after(image, whole(decide_shut_down(image, rules(), 1)))
    (fenced,) = whole(decide_fence(image, rules(), (1,)))
    assert fenced == BrokerChanged(1, 10, is_fenced=True, is_shutting_down=False)
    image.apply(fenced)
    asks_again = next_state(
        image,
        image.registered[1],
        is_caught_up=True,
        wants_fence=False,
        wants_shut_down=True,
        others_know=False,
    )
    assert asks_again is Next.GO


def test_brokers_that_go_together_are_not_elected_one_after_the_other() -> None:
    image = cluster(FULL)
    records = whole(decide_fence(image, rules(min_insync_replicas="2"), (1, 2)))
    assert state_after(image, records) == after(FULL, 1, leader=3, isr=(3,), elr=(1, 2))
    assert list(image.brokers) == [3, 4]


def test_partitions_that_lose_their_leader_come_before_those_that_lose_a_follower() -> None:
    followed = FULL._replace(leader=2)
    image = cluster(followed, FULL, followed, FULL)
    led, others, _fenced = whole(decide_fence(image, rules(), (1,)))
    assert isinstance(led, PartitionsChanged) and isinstance(others, PartitionsChanged)
    assert (list(led.states), list(others.states)) == ([1, 3], [0, 2])


DECISIONS: dict[str, Callable[[ClusterImage], Slices[Any]]] = {
    "register": lambda image: decide_register(image, rules(), registration()),
    "fence": lambda image: decide_fence(image, rules(), (1,)),
    "unfence": lambda image: decide_unfence(image, rules(), 1),
    "shut down": lambda image: decide_shut_down(image, rules(), 1),
    "unregister": lambda image: decide_unregister(image, rules(), 1),
    "leaderless": lambda image: decide_leaderless(image, rules(), 10),
    "rebalance": lambda image: decide_rebalance(image, rules()),
    "elect": lambda image: decide_elections(image, rules(), Election.PREFERRED, None),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_on_all_partitions_pauses_between_slices(name: str) -> None:
    slices = 4
    decision = DECISIONS[name](cluster(*[FULL] * PARTITIONS_PER_SLICE * slices))
    assert sum(1 for _pause in decision) >= slices


def test_an_unclean_leader_is_elected_only_where_the_topic_says_so() -> None:
    for enabled, leader in (("false", NO_LEADER), ("true", 2)):
        image = cluster(LAST, unclean_leader_election_enable=enabled)
        state = state_after(image, whole(decide_fence(image, rules(), (1,))))
        assert (state.leader, state.recovering) == (leader, leader == 2)


def test_a_broker_that_serves_again_leads_what_only_it_can() -> None:
    waiting = FULL._replace(leader=NO_LEADER, isr=(), elr=(1, 2))
    image = cluster(waiting, FULL._replace(leader=2, isr=(2, 3)), fenced=(1, 2))
    records = whole(decide_unfence(image, rules(min_insync_replicas="2"), 1))
    assert records[-1] == BrokerChanged(1, 10, is_fenced=False, is_shutting_down=False)
    assert changed_states(records) == {0: after(waiting, 1, leader=1, isr=(1,), elr=(2,))}


def test_who_is_not_eligible_leads_nothing_when_it_serves() -> None:
    image = cluster(FULL._replace(leader=NO_LEADER, isr=(), elr=(2,)), fenced=(1, 2))
    assert len(whole(decide_unfence(image, rules(), 1))) == 1


def test_a_broker_that_shuts_down_gives_its_leaders_away_first() -> None:
    image = cluster(FULL, ALONE)
    records = whole(decide_shut_down(image, rules(min_insync_replicas="2"), 1))
    assert records[0] == BrokerChanged(1, 10, is_fenced=False, is_shutting_down=True)
    states = changed_states(records)
    assert states[0] == after(FULL, 1, leader=2, isr=(2, 3))
    assert (states[1].leader, states[1].elr) == (NO_LEADER, (1,))


def test_a_broker_that_is_unregistered_is_in_no_set_unless_it_is_the_last() -> None:
    image = cluster(FULL, FULL._replace(leader=2, isr=(2,), elr=(1,)), ALONE)
    records = whole(decide_unregister(image, rules(min_insync_replicas="2"), 1))
    states = changed_states(records)
    assert states[0] == after(FULL, 1, leader=2, isr=(2, 3))
    assert states[1].elr == ()
    assert (states[2].leader, states[2].elr) == (NO_LEADER, (1,))
    state_after(image, records)
    assert 1 not in image.registered
    with pytest.raises(KafkaError, match="Broker ID 1 is not currently registered"):
        whole(decide_unregister(image, rules(), 1))


def test_a_failed_disk_fails_over_its_partitions_only() -> None:
    image = cluster(FULL, FULL)
    records = decide_replicas(image, rules(), 1, offline=[HERE, TopicPartition("gone", 0)])
    assert changed_states(records) == {0: after(FULL, 1, leader=2, isr=(2, 3), offline=(1,))}
    state = state_after(image, records)
    assert decide_replicas(image, rules(), 1, offline=[HERE]) == []
    (back,) = decide_replicas(image, rules(), 1, online=[HERE])
    assert state_after(image, [back]) == after(state, 0, offline=())


def test_a_partition_whose_only_disk_failed_is_led_again_when_it_is_back() -> None:
    image = cluster(ALONE)
    gone = state_after(image, decide_replicas(image, rules(), 1, offline=[HERE]))
    assert (gone.leader, gone.isr, gone.elr, gone.offline) == (NO_LEADER, (), (1,), (1,))
    back = state_after(image, decide_replicas(image, rules(), 1, online=[HERE]))
    assert (back.leader, back.isr, back.elr, back.offline) == (1, (1,), (), ())


def test_what_an_interrupted_controller_left_without_a_leader_gets_one() -> None:
    waiting = FULL._replace(leader=NO_LEADER, isr=(), elr=(2,))
    image = cluster(waiting, waiting, FULL)
    assert set(changed_states(whole(decide_leaderless(image, rules(), 10)))) == {0, 1}
    assert set(changed_states(whole(decide_leaderless(image, rules(), 1)))) == {0}


def test_an_old_life_of_a_broker_is_told_so() -> None:
    image = cluster()
    assert check_epoch(image, 1, 10).id == 1
    for broker_id, epoch, text in (
        (1, 9, "Expected broker epoch 10, but got broker epoch 9"),
        (9, 1, "No broker registration found for broker id 9"),
    ):
        with pytest.raises(KafkaError, match=text) as refused:
            check_epoch(image, broker_id, epoch)
        assert refused.value.code is ErrorCode.stale_broker_epoch


@pytest.mark.parametrize(
    ("fenced", "leaving", "caught_up", "wants_fence", "wants_down", "leads", "others_know", "expected"),
    [
        (True, False, True, False, False, False, True, Next.UNFENCE),
        (True, False, False, False, False, False, True, Next.STAY),
        (True, False, True, True, False, False, True, Next.STAY),
        (True, False, False, False, True, False, True, Next.GO),
        (False, False, True, False, False, True, True, Next.STAY),
        (False, False, True, True, False, True, True, Next.FENCE),
        (False, False, True, False, True, True, True, Next.SHUT_DOWN),
        (False, False, True, False, True, False, True, Next.GO),
        (False, False, True, True, True, True, True, Next.GO),
        (False, True, True, False, True, False, False, Next.STAY),
        (False, True, True, False, True, True, True, Next.STAY),
        (False, True, True, False, True, False, True, Next.GO),
    ],
)
def test_what_a_heartbeat_comes_to(
    fenced: bool,
    leaving: bool,
    caught_up: bool,
    wants_fence: bool,
    wants_down: bool,
    leads: bool,
    others_know: bool,
    expected: Next,
) -> None:
    image = cluster(FULL if leads else FULL._replace(leader=2))
    one = broker(1, is_fenced=fenced, is_shutting_down=leaving)
    assert (
        next_state(
            image,
            one,
            is_caught_up=caught_up,
            wants_fence=wants_fence,
            wants_shut_down=wants_down,
            others_know=others_know,
        )
        is expected
    )
