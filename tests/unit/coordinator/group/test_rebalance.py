"""Generations of a classic group: who is in them, how they begin, and what ends them."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import Joined
from moldau.coordinator.group.settings import GroupSettings

from .support import RANGE, Coordinator

UNKNOWN_MEMBER = ErrorCode.unknown_member_id
REBALANCING = ErrorCode.rebalance_in_progress


# ---- the first generation -----------------------------------------------------------------------------------


def test_a_lone_member_leads_the_first_generation(coordinator: Coordinator) -> None:
    reply = coordinator.join()
    coordinator.sleep(0)

    told = reply.response
    assert (told.error_code, told.generation_id, told.protocol_name) == (ErrorCode.none, 1, "range")
    assert told.leader == told.member_id
    assert [member.member_id for member in told.members] == [told.member_id]


def test_a_member_gets_its_id_before_it_joins(coordinator: Coordinator) -> None:
    told = coordinator.join(is_id_required=True).response
    assert told.error_code is ErrorCode.member_id_required
    assert told.member_id.startswith("client-")
    assert coordinator.described().members == ()

    reply = coordinator.join(member_id=told.member_id, is_id_required=True)
    coordinator.sleep(0)
    assert reply.response.member_id == told.member_id


def test_an_id_that_is_not_used_within_the_session_is_forgotten(coordinator: Coordinator) -> None:
    told = coordinator.join(is_id_required=True).response
    coordinator.sleep(10_000)

    assert coordinator.join(member_id=told.member_id).response.error_code is UNKNOWN_MEMBER


def test_an_empty_group_waits_for_more_members() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=3000))
    first = coordinator.join()
    coordinator.sleep(2900)
    second = coordinator.join()
    coordinator.sleep(2900)
    assert not first.is_answered  # the second one has put it off

    coordinator.sleep(200)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2


def test_an_empty_group_waits_no_longer_than_the_rebalance_time_out() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=3000))
    first = coordinator.join(rebalance_timeout_ms=7000)
    for _ in range(5):
        coordinator.sleep(1500)
        coordinator.join(rebalance_timeout_ms=7000)

    assert first.is_answered


def test_a_group_that_was_stable_does_not_wait_for_more() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=3000))
    first = coordinator.join()
    coordinator.sleep(3000)
    (leader,) = (first.response,)
    coordinator.sync(leader)

    second = coordinator.join()
    again = coordinator.join(member_id=leader.member_id)
    assert second.is_answered and again.is_answered


def test_every_member_is_told_its_own_part_and_only_the_leader_all_members(
    coordinator: Coordinator,
) -> None:
    members = coordinator.stable(3)

    assert [len(member.members) for member in members] == [3, 0, 0]
    parts = [member.member_assignment for member in coordinator.described().members]
    assert sorted(parts) == [b"part 0", b"part 1", b"part 2"]


def test_the_protocol_that_most_members_like_best_is_chosen(coordinator: Coordinator) -> None:
    range_first = (("range", b"r"), ("sticky", b"s"))
    sticky_first = (("sticky", b"s"), ("range", b"r"), ("own", b"o"))
    coordinator.join(protocols=range_first)
    coordinator.join(protocols=sticky_first)
    last = coordinator.join(protocols=sticky_first)
    coordinator.sleep(0)

    assert last.response.protocol_name == "sticky"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("range", "roundrobin"), "range"),
        (("range", "sticky"), "sticky"),
        (("range", "cooperative-sticky"), "range"),
        (("roundrobin", "cooperative-sticky"), "roundrobin"),
    ],
)
def test_of_protocols_with_as_many_votes_kafkas_is_chosen_whoever_comes_first(
    coordinator: Coordinator, names: tuple[str, str], chosen: str
) -> None:
    protocols = tuple((name, b"") for name in names)
    for first in (protocols, protocols[::-1]):
        replies = [coordinator.join(group_id=first[0][0], protocols=one) for one in (first, first[::-1])]
        coordinator.sleep(0)
        assert [reply.response.protocol_name for reply in replies] == [chosen, chosen]


def test_a_protocol_that_is_named_twice_counts_once(coordinator: Coordinator) -> None:
    reply = coordinator.join(protocols=(("range", b"1"), ("range", b"2")))
    coordinator.sleep(0)

    assert reply.response.protocol_name == "range"


# ---- changes ------------------------------------------------------------------------------------------------


def test_a_new_member_makes_the_others_join_again(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    newcomer = coordinator.join()

    assert coordinator.heartbeat(leader) is REBALANCING
    assert not newcomer.is_answered
    again = coordinator.join(member_id=leader.member_id)
    assert again.response.generation_id == newcomer.response.generation_id == 2
    assert coordinator.heartbeat(leader) is ErrorCode.illegal_generation


def test_a_member_that_leaves_makes_the_others_join_again(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)

    assert coordinator.leave((follower.member_id, None)) == [ErrorCode.none]
    assert coordinator.heartbeat(leader) is REBALANCING
    assert coordinator.join(member_id=leader.member_id).response.generation_id == 3


def test_a_member_that_is_silent_for_its_session_is_out(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    for _ in range(4):
        coordinator.sleep(3000)
        error = coordinator.heartbeat(leader)

    assert error is REBALANCING
    assert coordinator.heartbeat(follower) is UNKNOWN_MEMBER


def test_a_member_that_does_not_join_again_in_time_is_out(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2, rebalance_timeout_ms=20_000)
    reply = coordinator.join(member_id=leader.member_id, rebalance_timeout_ms=20_000)
    for _ in range(5):
        coordinator.sleep(3900)
        coordinator.heartbeat(follower)  # alive, but it does not join

    assert not reply.is_answered
    coordinator.sleep(600)
    assert [member.member_id for member in reply.response.members] == [leader.member_id]
    assert coordinator.heartbeat(follower) is UNKNOWN_MEMBER


def test_a_member_waiting_for_others_is_not_expected_to_send_heartbeats(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2, rebalance_timeout_ms=50_000)
    reply = coordinator.join(member_id=leader.member_id)
    for _ in range(8):
        coordinator.sleep(5000)
        coordinator.heartbeat(follower)
    assert not reply.is_answered

    coordinator.join(member_id=follower.member_id)
    assert reply.response.error_code is ErrorCode.none


def test_a_new_member_that_waits_for_five_minutes_is_asked_to_join_anew(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable(1, rebalance_timeout_ms=600_000)
    newcomer = coordinator.join(rebalance_timeout_ms=600_000)
    for _ in range(60):
        coordinator.sleep(5000)
        coordinator.heartbeat(leader)

    assert newcomer.response == Joined(UNKNOWN_MEMBER, "")


def test_who_does_not_ask_for_its_assignment_in_time_is_out(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2, rebalance_timeout_ms=20_000)
    replies = [
        coordinator.join(member_id=one.member_id, rebalance_timeout_ms=20_000) for one in (leader, follower)
    ]
    leader, follower = (reply.response for reply in replies)
    coordinator.sync(leader, [(leader.member_id, b"mine")])
    for _ in range(5):
        coordinator.sleep(3900)
        coordinator.heartbeat(leader)
        coordinator.heartbeat(follower)
    assert coordinator.state() == "Stable"

    coordinator.sleep(600)
    assert coordinator.state() == "PreparingRebalance"
    assert coordinator.heartbeat(follower) is UNKNOWN_MEMBER


def test_the_leader_leaving_before_it_assigns_makes_everyone_join_again(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    replies = [coordinator.join(member_id=one.member_id) for one in (leader, follower)]
    waiting = coordinator.sync(replies[1].response)
    coordinator.leave((leader.member_id, None))

    assert waiting.response.error_code is REBALANCING
    assert coordinator.join(member_id=follower.member_id).response.leader == follower.member_id


def test_when_all_have_left_the_group_is_empty_in_a_new_generation(coordinator: Coordinator) -> None:
    members = coordinator.stable(2)
    coordinator.leave(*((member.member_id, None) for member in members))

    assert coordinator.state() == "Empty"
    assert coordinator.described().protocol_type == "consumer"
    reply = coordinator.join()
    coordinator.sleep(0)
    assert reply.response.generation_id == 4


# ---- joining again ------------------------------------------------------------------------------------------


def test_a_follower_that_missed_its_answer_is_told_the_generation_again(coordinator: Coordinator) -> None:
    _, follower = coordinator.stable(2)

    told = coordinator.join(member_id=follower.member_id).response
    assert told.generation_id == follower.generation_id
    assert coordinator.state() == "Stable"


@pytest.mark.parametrize("who", ["the leader", "a follower with other metadata"])
def test_joining_a_stable_group_again_can_force_a_rebalance(coordinator: Coordinator, who: str) -> None:
    leader, follower = coordinator.stable(2)
    if who == "the leader":
        coordinator.join(member_id=leader.member_id)
    else:
        coordinator.join(member_id=follower.member_id, protocols=(("range", b"new"),))

    assert coordinator.state() == "PreparingRebalance"


def test_a_retried_join_takes_the_place_of_the_first(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    first = coordinator.join(member_id=leader.member_id)
    second = coordinator.join(member_id=leader.member_id)
    coordinator.join(member_id=follower.member_id)

    assert first.response.error_code is REBALANCING
    assert second.response.error_code is ErrorCode.none


def test_a_retried_sync_takes_the_place_of_the_first(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    replies = [coordinator.join(member_id=one.member_id) for one in (leader, follower)]
    leader, follower = (reply.response for reply in replies)
    first, second = coordinator.sync(follower), coordinator.sync(follower)
    coordinator.sync(leader, [(follower.member_id, b"yours")])

    assert first.response.error_code is REBALANCING
    assert second.response.assignment == b"yours"


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_a_session_time_out_has_bounds(coordinator: Coordinator, timeout_ms: int) -> None:
    reply = coordinator.join(session_timeout_ms=timeout_ms)
    assert reply.response.error_code is ErrorCode.invalid_session_timeout


def test_protocols_must_fit_those_of_the_others(coordinator: Coordinator) -> None:
    coordinator.stable()
    for fields in ({"protocols": (("own", b""),)}, {"protocol_type": "connect"}):
        assert coordinator.join(**fields).response.error_code is ErrorCode.inconsistent_group_protocol
    assert coordinator.state() == "Stable"


def test_a_group_takes_no_more_members_than_its_size() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=0, members_max=2))
    leader, follower = coordinator.stable(2)
    assert coordinator.join().response.error_code is ErrorCode.group_max_size_reached
    assert coordinator.state() == "Stable"

    reply = coordinator.join(member_id=leader.member_id)
    coordinator.join(member_id=follower.member_id)
    assert reply.response.error_code is ErrorCode.none


def test_of_several_members_of_an_empty_group_the_last_are_left_out() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=0, members_max=2))
    replies = [coordinator.join() for _ in range(3)]
    coordinator.sleep(0)

    errors = [reply.response.error_code for reply in replies]
    assert errors == [ErrorCode.none, ErrorCode.none, ErrorCode.group_max_size_reached]


def test_an_assignment_that_cannot_be_written_is_given_to_nobody(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    replies = [coordinator.join(member_id=one.member_id) for one in (leader, follower)]
    leader, follower = (reply.response for reply in replies)
    waiting = coordinator.sync(follower)
    coordinator.refusal = ErrorCode.coordinator_not_available
    handed_in = coordinator.sync(leader, [(leader.member_id, b"all")])

    assert handed_in.response is waiting.response is ErrorCode.coordinator_not_available
    assert coordinator.state() == "CompletingRebalance"
    coordinator.refusal = None
    assert coordinator.sync(leader, [(leader.member_id, b"all")]).response.assignment == b"all"


# ---- fail-over ----------------------------------------------------------------------------------------------


def test_after_a_fail_over_members_go_on_as_they_were(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    before = coordinator.described()
    coordinator.fail_over()

    assert coordinator.described() == before
    assert coordinator.heartbeat(leader) is coordinator.heartbeat(follower) is ErrorCode.none


def test_after_a_fail_over_silent_members_are_out_within_their_session(coordinator: Coordinator) -> None:
    coordinator.stable(2)
    coordinator.fail_over()
    coordinator.sleep(10_000)

    assert coordinator.state() == "Empty"


def test_a_fail_over_gives_up_requests_that_wait(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    newcomer = coordinator.join()

    assert coordinator.fail_over() == [newcomer]
    assert coordinator.state() == "Stable"
    assert coordinator.heartbeat(leader) is ErrorCode.none


def test_a_group_goes_on_after_a_fail_over_with_other_members(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    coordinator.fail_over()
    coordinator.leave((leader.member_id, None))
    reply = coordinator.join()
    coordinator.sleep(0)

    assert reply.response.protocol_name == "range"


def test_a_generation_that_was_never_assigned_is_lost_in_a_fail_over(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    newer = coordinator.join(member_id=leader.member_id, protocols=RANGE).response
    assert newer.generation_id == 2
    coordinator.fail_over()

    assert coordinator.heartbeat(newer) is ErrorCode.illegal_generation
    assert coordinator.sync(newer).response.error_code is ErrorCode.illegal_generation


def test_a_group_that_is_too_large_after_a_restart_rebalances() -> None:
    coordinator = Coordinator()
    leader, *_ = coordinator.stable(3)
    coordinator.settings = GroupSettings(initial_rebalance_delay_ms=0, members_max=2)
    coordinator.fail_over()

    assert coordinator.heartbeat(leader) is REBALANCING
