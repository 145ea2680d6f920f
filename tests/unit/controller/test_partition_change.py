"""A partition's next state: elections, eligible replicas, the end of a reassignment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.controller.partition_change import NOTHING, Election, Target, changed
from moldau.metadata.records import NO_LEADER, PartitionState

FULL = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9)
LEADERLESS = FULL._replace(leader=NO_LEADER, isr=(), elr=(1, 2), last_known_elr=(1,))
ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


def after(state: PartitionState, bumps: int, **fields: Any) -> PartitionState:
    return state._replace(
        leader_epoch=state.leader_epoch + bumps, partition_epoch=state.partition_epoch + 1, **fields
    )


@pytest.mark.parametrize(
    ("what", "state", "target", "live", "min_isr", "election", "expected"),
    [
        ("nothing to do", FULL, NOTHING, {1, 2, 3}, 2, ONLINE, None),
        (
            "the in-sync set shrinks in the same leader epoch",
            FULL,
            Target(isr=(1, 2)),
            {1, 2, 3},
            2,
            ONLINE,
            after(FULL, 0, isr=(1, 2)),
        ),
        (
            "who falls out below min.insync.replicas stays eligible",
            FULL,
            Target(isr=(1,)),
            {1, 2, 3},
            2,
            ONLINE,
            after(FULL, 0, isr=(1,), elr=(2, 3)),
        ),
        (
            "nobody is eligible besides a set that is large enough",
            FULL._replace(isr=(1,), elr=(2, 3)),
            Target(isr=(1, 3)),
            {1, 3},
            2,
            ONLINE,
            after(FULL, 0, isr=(1, 3), elr=()),
        ),
        (
            "a leader that is gone is followed by the next replica in sync",
            FULL,
            Target(isr=(2, 3)),
            {2, 3},
            2,
            ONLINE,
            after(FULL, 1, leader=2, isr=(2, 3)),
        ),
        (
            "a replica that is fenced is passed over",
            FULL,
            Target(isr=(2, 3)),
            {3},
            1,
            ONLINE,
            after(FULL, 1, leader=3, isr=(2, 3)),
        ),
        (
            "out of the set is nobody elected",
            FULL._replace(isr=(1,)),
            Target(isr=()),
            {2, 3},
            1,
            ONLINE,
            after(FULL, 1, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
        ),
        (
            "with nobody in sync an eligible one leads, alone",
            LEADERLESS,
            NOTHING,
            {2, 3},
            2,
            ONLINE,
            after(LEADERLESS, 1, leader=2, isr=(2,), elr=(1,), last_known_elr=()),
        ),
        (
            "and leaves nobody eligible where it is enough by itself",
            LEADERLESS,
            NOTHING,
            {2, 3},
            1,
            ONLINE,
            after(LEADERLESS, 1, leader=2, isr=(2,), elr=(), last_known_elr=()),
        ),
        ("who is not eligible does not lead", LEADERLESS, NOTHING, {3}, 2, ONLINE, None),
        (
            "unless an unclean election is wanted",
            LEADERLESS,
            NOTHING,
            {3},
            2,
            UNCLEAN,
            after(LEADERLESS, 1, leader=3, isr=(3,), elr=(), last_known_elr=(), recovering=True),
        ),
        (
            "which prefers an eligible one",
            LEADERLESS,
            NOTHING,
            {3, 2},
            2,
            UNCLEAN,
            after(LEADERLESS, 1, leader=2, isr=(2,), elr=(1,), last_known_elr=()),
        ),
        (
            "and then the last known leader",
            LEADERLESS._replace(elr=(), last_known_elr=(2,)),
            NOTHING,
            {1, 2},
            2,
            UNCLEAN,
            after(LEADERLESS, 1, leader=2, isr=(2,), elr=(), last_known_elr=(), recovering=True),
        ),
        (
            "the preferred leader takes over from another that is well",
            FULL._replace(leader=2),
            NOTHING,
            {1, 2, 3},
            2,
            PREFERRED,
            after(FULL, 1, leader=1),
        ),
        (
            "not where it is out of sync",
            FULL._replace(leader=2, isr=(2, 3)),
            NOTHING,
            {1, 2, 3},
            2,
            PREFERRED,
            None,
        ),
        (
            "without being asked nobody takes over",
            FULL._replace(leader=2),
            NOTHING,
            {1, 2, 3},
            2,
            ONLINE,
            None,
        ),
        (
            "who may have lost records is not eligible",
            FULL,
            Target(isr=(2,), ineligible={1}),
            {2},
            3,
            ONLINE,
            after(FULL, 1, leader=2, isr=(2,), elr=(3,)),
        ),
        (
            "min.insync.replicas above the number of replicas counts as all of them",
            FULL,
            NOTHING,
            {1, 2, 3},
            5,
            ONLINE,
            None,
        ),
        (
            "a failed disk is remembered",
            FULL,
            Target(isr=(1, 3), offline=(2,)),
            {1, 3},
            2,
            ONLINE,
            after(FULL, 0, isr=(1, 3), offline=(2,)),
        ),
        (
            "a leader that has recovered says so",
            FULL._replace(isr=(1,), recovering=True),
            Target(isr=(1,), recovering=False),
            {1, 2, 3},
            1,
            ONLINE,
            after(FULL, 0, isr=(1,), recovering=False),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_next_state(
    what: str,
    state: PartitionState,
    target: Target,
    live: set[int],
    min_isr: int,
    election: Election,
    expected: PartitionState | None,
) -> None:
    assert changed(state, target, live.__contains__, min_isr, election) == expected, what


MOVING = PartitionState(
    1, 4, replicas=(3, 4, 1, 2), isr=(1, 2), partition_epoch=9, adding=(3, 4), removing=(1, 2)
)


@pytest.mark.parametrize(
    ("what", "state", "isr", "expected"),
    [
        ("waits for all who come", MOVING, (1, 2, 3), after(MOVING, 0, isr=(1, 2, 3))),
        (
            "ends with the last of them, and a new leader",
            MOVING,
            (1, 3, 4),
            after(MOVING, 1, leader=3, replicas=(3, 4), isr=(3, 4), adding=(), removing=()),
        ),
        (
            "ends without another leader where that one stays",
            MOVING._replace(replicas=(1, 3, 2), adding=(3,), removing=(2,)),
            (1, 2, 3),
            after(MOVING, 1, leader=1, replicas=(1, 3), isr=(1, 3), adding=(), removing=()),
        ),
        (
            "that only adds keeps the leader epoch",
            MOVING._replace(replicas=(1, 2, 3), adding=(3,), removing=()),
            (1, 2, 3),
            after(MOVING, 0, replicas=(1, 2, 3), isr=(1, 2, 3), adding=(), removing=()),
        ),
        (
            "that only removes waits for one in sync that stays",
            MOVING._replace(replicas=(3, 1), isr=(1,), adding=(), removing=(1,)),
            (1, 3),
            after(MOVING, 1, leader=3, replicas=(3,), isr=(3,), adding=(), removing=()),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_reassignment(
    what: str, state: PartitionState, isr: tuple[int, ...], expected: PartitionState
) -> None:
    assert changed(state, Target(isr=isr), {1, 2, 3, 4}.__contains__, 1) == expected, what


ids = st.integers(1, 4)


@given(
    st.permutations([1, 2, 3, 4]),
    st.sets(ids),
    st.sets(ids),
    st.sets(ids),
    st.sets(ids),
    st.integers(-1, 4),
    st.sampled_from(Election),
    st.integers(1, 4),
)
def test_whatever_changes_the_set_and_the_leader_are_sound(
    replicas: list[int],
    isr: set[int],
    elr: set[int],
    live: set[int],
    staying: set[int],
    leader: int,
    election: Election,
    min_isr: int,
) -> None:
    in_sync = tuple(replica for replica in replicas if replica in isr)
    state = PartitionState(
        leader if leader in isr else NO_LEADER,
        3,
        tuple(replicas),
        in_sync,
        7,
        elr=tuple(replica for replica in replicas if replica in elr - isr),
    )
    target = Target(isr=tuple(replica for replica in in_sync if replica in staying))
    got = changed(state, target, live.__contains__, min_isr, election)
    if got is None:
        return
    assert got.partition_epoch == 8
    assert not set(got.isr) & set(got.elr)
    assert set(got.isr) | set(got.elr) <= set(got.replicas)
    assert (got.leader_epoch > 3) == (got.leader != state.leader)
    if got.leader != NO_LEADER:
        assert got.leader in got.isr and got.leader in live
        if not got.recovering:
            assert got.leader in set(state.isr) | set(state.elr)
    if len(got.isr) < min_isr and not got.recovering:
        assert isr | set(state.elr) <= set(got.isr) | set(got.elr)
    if len(got.isr) >= min_isr:
        assert not got.elr
