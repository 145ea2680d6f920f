"""A group changes its protocol while it has members, both ways, and has members of both in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.embedded import read_assignment, write_assignment
from moldau.coordinator.group.consumer.settings import Migration
from moldau.coordinator.group.messages import Joined, Synced

from .consumer_support import AT_ONCE, SESSION_MS, Consumer, Consumers, settle

TOPIC = "t"


def subscription(*owned: int) -> tuple[tuple[str, bytes], ...]:
    """What a cooperative consumer of the topic sends."""
    head = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    if not owned:
        return (("range", head + b"\x00\x00\x00\x00"),)
    rows = b"\x00\x00\x00\x01\x00\x01t" + len(owned).to_bytes(4, "big")
    return (("range", head + rows + b"".join(one.to_bytes(4, "big") for one in owned)),)


class Classic:
    """A client of the classic protocol, cooperative: it keeps what it has until it is told otherwise."""

    def __init__(self, coordinator: Consumers) -> None:
        self.coordinator = coordinator
        self.joined: Joined = Joined(ErrorCode.none, "")
        self.partitions: tuple[int, ...] = ()

    def join(self, expected: ErrorCode = ErrorCode.none) -> None:
        reply = self.coordinator.join(
            member_id=self.joined.member_id, protocols=subscription(*self.partitions)
        )
        self.coordinator.sleep(0)
        assert reply.response.error_code is expected
        self.joined = reply.response

    def sync(self) -> None:
        """As a leader it assigns everything to itself."""
        mine = ((self.joined.member_id, write_assignment(1, {TOPIC: (0, 1, 2, 3)})),)
        is_leader = self.joined.leader == self.joined.member_id
        response: Synced = self.coordinator.sync(self.joined, mine if is_leader else ()).response
        assert response.error_code is ErrorCode.none
        partitions, _ = read_assignment(response.assignment)
        self.partitions = partitions.get(TOPIC, ())

    def beat(self) -> ErrorCode:
        return self.coordinator.heartbeat(self.joined)

    def follow(self) -> None:
        """A heartbeat, and what it leads to."""
        if self.beat() is ErrorCode.rebalance_in_progress:
            self.join()
            self.sync()


@pytest.fixture
def coordinator() -> Consumers:
    return Consumers()


def classic_member(coordinator: Consumers) -> Classic:
    member = Classic(coordinator)
    member.join()
    member.sync()
    return member


def work_together(classic: Classic, *consumers: Consumer) -> None:
    for _ in range(5):
        classic.follow()
        for consumer in consumers:
            assert not consumer.beat().error_code


def test_a_consumer_that_joins_a_classic_group_takes_it_over_and_nobody_loses_its_partitions(
    coordinator: Consumers,
) -> None:
    classic = classic_member(coordinator)
    assert classic.partitions == (0, 1, 2, 3)
    assert coordinator.kind() == "classic"
    consumer = Consumer(coordinator, "new")
    assert not consumer.join().error_code
    assert coordinator.kind() == "consumer"
    assert consumer.partitions == []  # the classic member has them still
    work_together(classic, consumer)
    assert len(classic.partitions) == len(consumer.partitions) == 2
    assert sorted([*classic.partitions, *consumer.partitions]) == [0, 1, 2, 3]
    assert sorted(member.member_type for member in coordinator.shown().members) == [0, 1]


def test_when_the_last_consumer_leaves_the_group_is_classic_again(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new")
    consumer.join()
    work_together(classic, consumer)
    consumer.leave()
    coordinator.sleep(0)
    assert coordinator.kind() == "classic"
    assert classic.beat() is ErrorCode.rebalance_in_progress
    classic.join()
    classic.sync()
    assert classic.partitions == (0, 1, 2, 3)
    assert coordinator.state() == "Stable"


def test_a_consumer_that_falls_silent_is_followed_by_the_classic_protocol(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new")
    consumer.join()
    work_together(classic, consumer)
    for _ in range(SESSION_MS // 5_000):
        coordinator.sleep(5_000)
        classic.beat()
    assert coordinator.kind() == "classic"


def test_a_classic_member_joins_a_consumer_group(coordinator: Consumers) -> None:
    consumer = Consumer(coordinator, "new")
    consumer.join()
    classic = Classic(coordinator)
    classic.join()
    classic.sync()
    assert classic.partitions == ()
    work_together(classic, consumer)
    assert sorted([*classic.partitions, *consumer.partitions]) == [0, 1, 2, 3]
    assert coordinator.leave((classic.joined.member_id, None)) == [ErrorCode.none]
    settle(consumer)
    assert consumer.partitions == [0, 1, 2, 3]
    assert coordinator.kind() == "consumer"


def test_a_classic_member_is_told_to_join_again_once_there_is_a_new_target(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    stays, leaves = Consumer(coordinator, "stays"), Consumer(coordinator, "leaves")
    stays.join()
    leaves.join()
    work_together(classic, stays, leaves)
    leaves.leave()
    assert classic.beat() is ErrorCode.none
    assert coordinator.sync(classic.joined).response.error_code is ErrorCode.none
    stays.beat()
    assert classic.beat() is ErrorCode.rebalance_in_progress
    assert coordinator.sync(classic.joined).response.error_code is ErrorCode.rebalance_in_progress


def test_a_classic_member_that_does_not_join_again_in_time_is_out(coordinator: Consumers) -> None:
    consumer = Consumer(coordinator, "new")
    consumer.join()
    classic = Classic(coordinator)
    classic.join()
    classic.sync()
    work_together(classic, consumer)
    Consumer(coordinator, "third").join()
    for _ in range(13):
        classic.beat()
        consumer.beat()
        coordinator.sleep(5_000)
    assert classic.beat() is ErrorCode.unknown_member_id


def test_a_classic_member_that_does_not_ask_for_its_assignment_is_out(coordinator: Consumers) -> None:
    consumer = Consumer(coordinator, "new")
    consumer.join()
    classic = Classic(coordinator)
    classic.join()
    for _ in range(12):
        coordinator.heartbeat(classic.joined)
        consumer.beat()
        coordinator.sleep(5_000)
    assert len(coordinator.shown().members) == 1


def test_a_group_without_members_changes_its_protocol_either_way(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    coordinator.leave((classic.joined.member_id, None))
    consumer = Consumer(coordinator, "new")
    consumer.join()
    assert coordinator.kind() == "consumer"
    consumer.leave()
    classic_member(coordinator)
    assert coordinator.kind() == "classic"
    coordinator.fail_over()
    assert coordinator.kind() == "classic"
    assert len(coordinator.described().members) == 1


def test_committed_offsets_stay_through_changes_of_protocol(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    assert coordinator.commit_as(classic.joined, 7) is ErrorCode.none
    consumer = Consumer(coordinator, "new")
    consumer.join()
    assert coordinator.committed() == 7
    coordinator.leave((classic.joined.member_id, None))
    settle(consumer)
    consumer.leave()
    coordinator.fail_over()
    assert coordinator.committed() == 7


@pytest.mark.parametrize("policy", [Migration.DISABLED, Migration.DOWNGRADE])
def test_a_group_with_members_is_not_upgraded_where_that_is_not_allowed(policy: Migration) -> None:
    coordinator = Consumers(replace(AT_ONCE, migration=policy))
    classic_member(coordinator)
    answer = Consumer(coordinator, "new").join()
    assert answer.error_code is ErrorCode.group_id_not_found
    assert coordinator.kind() == "classic"


def test_a_group_is_not_downgraded_where_that_is_not_allowed() -> None:
    coordinator = Consumers(replace(AT_ONCE, migration=Migration.UPGRADE))
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new")
    consumer.join()
    work_together(classic, consumer)
    consumer.leave()
    assert coordinator.kind() == "consumer"
    work_together(classic)
    assert classic.partitions == (0, 1, 2, 3)


def test_a_group_of_another_type_is_not_upgraded(coordinator: Consumers) -> None:
    coordinator.join(protocol_type="connect")
    coordinator.sleep(0)
    assert Consumer(coordinator, "new").join().error_code is ErrorCode.group_id_not_found


def test_a_change_of_protocol_survives_a_fail_over(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new")
    consumer.join()
    coordinator.fail_over()
    assert coordinator.kind() == "consumer"
    work_together(classic, consumer)
    assert sorted([*classic.partitions, *consumer.partitions]) == [0, 1, 2, 3]
    consumer.leave()
    coordinator.fail_over()
    assert coordinator.kind() == "classic"
    assert [member.member_id for member in coordinator.described().members] == [classic.joined.member_id]


def test_a_member_that_waits_in_a_classic_group_is_told_to_join_the_consumer_group(
    coordinator: Consumers,
) -> None:
    classic_member(coordinator)
    waiting = coordinator.join(protocols=subscription())
    assert not waiting.is_answered
    Consumer(coordinator, "new").join()
    assert waiting.response.error_code is ErrorCode.rebalance_in_progress


def test_a_consumer_that_is_refused_leaves_the_classic_group_as_it_was(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    waiting = coordinator.join(protocols=subscription())
    refused = Consumer(coordinator, "new", topics=None, regex="[").join()
    assert refused.error_code is ErrorCode.invalid_regular_expression
    assert coordinator.kind() == "classic"
    assert not waiting.is_answered
    classic.join()
    assert waiting.response.error_code is ErrorCode.none


def test_an_id_that_was_given_out_keeps_no_consumer_from_an_empty_group(coordinator: Consumers) -> None:
    given = coordinator.join(protocols=subscription(), is_id_required=True).response
    assert given.error_code is ErrorCode.member_id_required
    assert not Consumer(coordinator, "new").join().error_code
    assert coordinator.kind() == "consumer"
    joined = coordinator.join(member_id=given.member_id, protocols=subscription()).response
    assert (joined.error_code, joined.member_id) == (ErrorCode.none, given.member_id)


def test_a_classic_instance_in_the_place_of_the_last_consumer_goes_on_without_a_rebalance(
    coordinator: Consumers,
) -> None:
    consumer = Consumer(coordinator, "new", instance_id="i")
    consumer.join()
    joined = coordinator.join(instance_id="i", protocols=subscription()).response
    coordinator.sleep(0)
    assert coordinator.kind() == "classic"
    assert coordinator.state() == "Stable"
    assert coordinator.heartbeat(joined, "i") is ErrorCode.none
    synced = coordinator.sync(joined, instance_id="i").response
    assert read_assignment(synced.assignment)[0] == {TOPIC: (0, 1, 2, 3)}


def test_a_downgrade_that_cannot_be_recorded_is_made_later(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new")
    consumer.join()
    work_together(classic, consumer)
    coordinator.refusal = ErrorCode.not_enough_replicas
    consumer.leave()
    coordinator.sleep(0)
    assert coordinator.kind() == "consumer"
    coordinator.refusal = None
    for _ in range(SESSION_MS // 5_000):
        coordinator.sleep(5_000)
        classic.follow()
    assert coordinator.kind() == "classic"
    classic.follow()
    assert classic.partitions == (0, 1, 2, 3)
