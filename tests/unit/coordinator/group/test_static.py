"""Static members: they keep their place over restarts, and a second instance fences the first (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import Joined

from .support import Coordinator

FENCED = ErrorCode.fenced_instance_id


@pytest.fixture
def leader(coordinator: Coordinator) -> Joined:
    """Of a stable group of one static member."""
    reply = coordinator.join(instance_id="one")
    coordinator.sleep(0)
    coordinator.sync(reply.response, [(reply.response.member_id, b"all")], instance_id="one")
    told: Joined = reply.response
    return told


def test_a_static_member_gets_an_id_of_its_instance(leader: Joined) -> None:
    assert leader.member_id.startswith("one-")


def test_a_second_instance_takes_the_place_without_a_rebalance(
    coordinator: Coordinator, leader: Joined
) -> None:
    told = coordinator.join(instance_id="one").response

    assert told.error_code is ErrorCode.none
    assert told.generation_id == leader.generation_id
    assert told.member_id != leader.member_id
    assert coordinator.sync(told, instance_id="one").response.assignment == b"all"


def test_the_first_instance_is_fenced(coordinator: Coordinator, leader: Joined) -> None:
    coordinator.join(instance_id="one")

    assert coordinator.heartbeat(leader, "one") is FENCED
    assert coordinator.sync(leader, instance_id="one").response.error_code is FENCED
    assert coordinator.commit_as(leader, 5, instance_id="one") is FENCED
    assert coordinator.join(member_id=leader.member_id, instance_id="one").response.error_code is FENCED
    assert coordinator.leave((leader.member_id, "one")) == [FENCED]


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment(
    coordinator: Coordinator, leader: Joined
) -> None:
    told = coordinator.join(instance_id="one").response

    assert told.skip_assignment
    assert told.leader == told.member_id
    assert len(told.members) == 1


def test_an_old_client_that_comes_back_is_told_that_another_leads(
    coordinator: Coordinator, leader: Joined
) -> None:
    told = coordinator.join(instance_id="one", can_skip_assignment=False).response

    assert not told.skip_assignment
    assert told.leader == leader.member_id
    assert told.members == ()


def test_the_new_id_survives_a_fail_over(coordinator: Coordinator, leader: Joined) -> None:
    told = coordinator.join(instance_id="one").response
    coordinator.fail_over()

    assert coordinator.heartbeat(told, "one") is ErrorCode.none
    assert coordinator.heartbeat(leader, "one") is FENCED


def test_a_second_instance_with_another_protocol_forces_a_rebalance(coordinator: Coordinator) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    reply = coordinator.join(instance_id="one", protocols=both)
    coordinator.sleep(0)
    coordinator.sync(reply.response, instance_id="one")

    told = coordinator.join(instance_id="one", protocols=both[::-1]).response
    assert told.generation_id == 2
    assert told.protocol_name == "sticky"


def test_a_second_instance_fences_the_requests_of_the_first_that_wait(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    first = coordinator.join(instance_id="one")
    second = coordinator.join(instance_id="one")

    assert first.response.error_code is FENCED
    coordinator.join(member_id=leader.member_id)
    assert second.response.error_code is ErrorCode.none


def test_a_second_instance_between_join_and_sync_makes_everyone_join_again(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    first = coordinator.join(instance_id="one")
    coordinator.join(member_id=leader.member_id)
    waiting = coordinator.sync(first.response, instance_id="one")
    second = coordinator.join(instance_id="one")

    assert waiting.response.error_code is FENCED
    assert coordinator.state() == "PreparingRebalance"
    assert coordinator.join(member_id=leader.member_id).response.generation_id == 3
    assert second.response.generation_id == 3


def test_a_static_member_that_does_not_join_again_keeps_its_place(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable(1, rebalance_timeout_ms=15_000)
    fields = {"instance_id": "one", "session_timeout_ms": 100_000, "rebalance_timeout_ms": 15_000}
    static = coordinator.join(**fields)
    leader = coordinator.join(member_id=leader.member_id, rebalance_timeout_ms=15_000).response
    coordinator.assign([leader, static.response])
    again = coordinator.join(member_id=leader.member_id, rebalance_timeout_ms=15_000)
    coordinator.sleep(15_000)

    assert len(again.response.members) == 2


def test_an_administrator_takes_out_a_static_member_by_its_instance(
    coordinator: Coordinator, leader: Joined
) -> None:
    assert coordinator.leave(("", "other"), ("", "one")) == [ErrorCode.unknown_member_id, ErrorCode.none]
    assert coordinator.state() == "Empty"
    assert coordinator.heartbeat(leader, "one") is ErrorCode.unknown_member_id


def test_a_static_member_that_is_silent_is_out_too(coordinator: Coordinator, leader: Joined) -> None:
    coordinator.sleep(10_000)
    assert coordinator.state() == "Empty"
