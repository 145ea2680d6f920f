"""Committed offsets: who may commit, what is kept, for how long, and what a group's end means for them."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import PartitionWanted
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.shard import Producer

from .support import Coordinator, new_reply

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS


# ---- committing ---------------------------------------------------------------------------------------------


def test_anyone_may_commit_for_a_group_without_members(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, metadata="as sent ✓") is ErrorCode.none

    (found,) = coordinator.shard.fetch("g", [PartitionWanted("t", 0)], require_stable=False)
    assert (found.offset, found.metadata, found.error) == (5, "as sent ✓", ErrorCode.none)
    assert coordinator.state() == "Empty"


def test_a_group_that_nobody_heard_of_has_no_offsets_and_no_error(coordinator: Coordinator) -> None:
    (found,) = coordinator.shard.fetch("nobody", [PartitionWanted("t", 0)], require_stable=True)
    assert (found.offset, found.leader_epoch, found.metadata, found.error) == (-1, -1, "", ErrorCode.none)
    assert coordinator.state("nobody") == "Dead"


def test_members_commit_in_their_generation(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)

    assert coordinator.commit_as(leader, 5) is ErrorCode.none
    assert coordinator.commit_as(follower, 6, partition=1) is ErrorCode.none
    assert coordinator.commit_as(leader._replace(generation_id=1), 7) is ErrorCode.illegal_generation
    assert coordinator.commit_as(leader._replace(member_id="x"), 7) is ErrorCode.unknown_member_id
    assert coordinator.commit(7) is ErrorCode.unknown_member_id
    assert coordinator.committed() == 5


def test_a_member_of_a_lost_generation_changes_nothing(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    coordinator.leave((follower.member_id, None))
    coordinator.join(member_id=leader.member_id)

    assert coordinator.commit_as(follower, 9) is ErrorCode.unknown_member_id
    assert coordinator.commit_as(leader, 9) is ErrorCode.illegal_generation
    assert coordinator.committed() is None


def test_members_may_commit_while_others_join_but_not_before_the_assignment(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable(2)
    coordinator.join(member_id=leader.member_id)
    assert coordinator.commit_as(follower, 5) is ErrorCode.none

    told = coordinator.join(member_id=follower.member_id).response
    assert coordinator.commit_as(told, 6) is ErrorCode.rebalance_in_progress


def test_a_commit_keeps_the_session_alive(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable()
    for offset in range(5):
        coordinator.sleep(9000)
        assert coordinator.commit_as(leader, offset) is ErrorCode.none


@pytest.mark.parametrize(
    ("knows", "error"), [(True, ErrorCode.group_id_not_found), (False, ErrorCode.illegal_generation)]
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    coordinator: Coordinator, knows: bool, error: ErrorCode
) -> None:
    assert coordinator.commit(5, generation=1, member_id="x", knows_missing_groups=knows) is error


def test_metadata_has_a_largest_length(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, metadata="x" * 4096) is ErrorCode.none
    assert coordinator.commit(6, metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
    assert coordinator.committed() == 5


def test_the_length_of_metadata_is_counted_as_java_counts_letters(coordinator: Coordinator) -> None:
    assert coordinator.commit(5, metadata="ü" * 4096) is ErrorCode.none
    assert coordinator.commit(6, metadata="\N{GRINNING FACE}" * 2048) is ErrorCode.none
    assert coordinator.commit(7, metadata="\N{GRINNING FACE}" * 2049) is ErrorCode.offset_metadata_too_large
    assert coordinator.committed() == 6


def test_a_commit_that_cannot_be_written_is_not_kept(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    reply = new_reply()
    coordinator.refusal = ErrorCode.not_coordinator
    coordinator.carry_out(coordinator.shard.delete("g", reply))

    assert reply.response is ErrorCode.not_coordinator
    assert coordinator.committed() == 5


def test_offsets_survive_a_fail_over(coordinator: Coordinator) -> None:
    for offset in (5, 3, 8):
        coordinator.commit(offset)
    coordinator.commit(2, topic="u", partition=7)
    coordinator.fail_over()

    assert coordinator.committed() == 8
    assert coordinator.committed("u", 7) == 2
    assert coordinator.state() == "Empty"


# ---- transactions -------------------------------------------------------------------------------------------


def test_an_offset_of_an_open_transaction_does_not_count_yet(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    coordinator.commit_in_transaction(9, Producer(7, 0))

    assert coordinator.committed() == 5
    (stable,) = coordinator.shard.fetch("g", [PartitionWanted("t", 0)], require_stable=True)
    assert (stable.offset, stable.error) == (-1, ErrorCode.unstable_offset_commit)


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 9), (False, 5)])
def test_the_end_of_a_transaction_decides(coordinator: Coordinator, is_commit: bool, offset: int) -> None:
    coordinator.commit(5)
    coordinator.commit_in_transaction(9, Producer(7, 0))
    coordinator.shard.apply_marker(Producer(7, 0), is_commit=is_commit)

    (stable,) = coordinator.shard.fetch("g", [PartitionWanted("t", 0)], require_stable=True)
    assert (stable.offset, stable.error) == (offset, ErrorCode.none)


@pytest.mark.parametrize("by_transaction", [False, True])
def test_of_two_commits_the_later_counts_whichever_transaction_ends_last(
    coordinator: Coordinator, by_transaction: bool
) -> None:
    """As after a compaction, which leaves only the later one."""
    coordinator.commit_in_transaction(9, Producer(7, 0))
    if by_transaction:
        coordinator.commit_in_transaction(12, Producer(8, 0))
        coordinator.shard.apply_marker(Producer(8, 0), is_commit=True)
    else:
        coordinator.commit(12)
    assert coordinator.committed() == 12
    assert is_unstable(coordinator)

    coordinator.shard.apply_marker(Producer(7, 0), is_commit=True)
    assert coordinator.committed() == 12
    assert not is_unstable(coordinator)


def test_a_transaction_that_commits_again_later_counts_later(coordinator: Coordinator) -> None:
    for offset, producer_id in ((9, 7), (12, 8), (15, 7)):
        coordinator.commit_in_transaction(offset, Producer(producer_id, 0))
    coordinator.shard.apply_marker(Producer(7, 0), is_commit=True)
    coordinator.shard.apply_marker(Producer(8, 0), is_commit=True)

    assert coordinator.committed() == 15


def test_an_aborted_transaction_leaves_the_older_one_its_turn(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction(9, Producer(7, 0))
    coordinator.commit_in_transaction(12, Producer(8, 0))
    coordinator.shard.apply_marker(Producer(8, 0), is_commit=False)
    assert is_unstable(coordinator)

    coordinator.shard.apply_marker(Producer(7, 0), is_commit=True)
    assert coordinator.committed() == 9


@pytest.mark.parametrize("what", ["the group", "the offset", "the topic"])
def test_what_is_deleted_while_a_transaction_is_open_does_not_come_back_with_its_end(
    coordinator: Coordinator, what: str
) -> None:
    coordinator.commit_in_transaction(9, Producer(7, 0))
    if what == "the group":
        assert coordinator.delete() is ErrorCode.none
    elif what == "the offset":
        assert delete_offsets(coordinator, ("t", 0)) == (ErrorCode.none, [ErrorCode.none])
    else:
        coordinator.carry_out(coordinator.shard.on_topics_deleted(["t"]))
    assert not is_unstable(coordinator)

    coordinator.shard.apply_marker(Producer(7, 0), is_commit=True)
    assert coordinator.committed() is None


def is_unstable(coordinator: Coordinator) -> bool:
    (found,) = coordinator.shard.fetch("g", [PartitionWanted("t", 0)], require_stable=True)
    return found.error is ErrorCode.unstable_offset_commit


# ---- retention ----------------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_members_are_kept_since_their_commit(coordinator: Coordinator) -> None:
    coordinator.commit(1, topic="old")
    coordinator.sleep(WEEK_MS - DAY_MS)
    coordinator.commit(2, topic="new")
    coordinator.sleep(DAY_MS + 600_000)

    assert coordinator.committed("old") is None
    assert coordinator.committed("new") == 2
    coordinator.sleep(WEEK_MS)
    assert coordinator.state() == "Dead"
    assert coordinator.log[-1][1] is None


def test_offsets_are_kept_since_the_group_lost_its_members(coordinator: Coordinator) -> None:
    (leader,) = coordinator.stable(session_timeout_ms=1_800_000)
    coordinator.commit_as(leader, 5)
    for _ in range(10 * 24 * 2):
        coordinator.sleep(1_795_000)
        assert coordinator.heartbeat(leader) is ErrorCode.none
    coordinator.leave((leader.member_id, None))
    coordinator.sleep(WEEK_MS - DAY_MS)
    assert coordinator.committed() == 5

    coordinator.sleep(DAY_MS + 600_000)
    assert coordinator.committed() is None
    assert coordinator.state() == "Dead"


def test_a_group_with_members_lets_go_of_topics_that_it_does_not_read() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=60_000))
    (leader,) = coordinator.stable(session_timeout_ms=1_800_000)
    coordinator.commit_as(leader, 5, topic="t")  # its subscription has it
    coordinator.commit_as(leader, 6, topic="u")
    coordinator.sleep(660_000)

    assert coordinator.committed("t") == 5
    assert coordinator.committed("u") is None
    assert coordinator.state() == "Stable"


def test_an_old_client_may_say_how_long_its_offset_is_kept(coordinator: Coordinator) -> None:
    coordinator.commit(5, retention_ms=2 * 3_600_000)
    coordinator.fail_over()
    coordinator.sleep(3_600_000)
    assert coordinator.committed() == 5

    coordinator.sleep(3_600_000 + 600_000)
    assert coordinator.committed() is None


def test_an_offset_of_an_open_transaction_keeps_its_group(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction(9, Producer(7, 0))
    coordinator.sleep(2 * WEEK_MS)

    assert coordinator.state() == "Empty"


def test_many_groups_expire_in_pieces(coordinator: Coordinator) -> None:
    for number in range(450):
        coordinator.commit(1, group_id=f"g{number}")
    coordinator.sleep(WEEK_MS)
    coordinator.now_ms += 600_000
    coordinator.sleep(0)
    left = len(coordinator.shard.list_groups())
    assert 0 < left < 450

    coordinator.sleep(10)
    assert coordinator.shard.list_groups() == []


# ---- deleting -----------------------------------------------------------------------------------------------


def test_deleting_a_group_takes_its_offsets(coordinator: Coordinator) -> None:
    coordinator.commit(5)
    assert coordinator.delete() is ErrorCode.none
    assert coordinator.delete() is ErrorCode.group_id_not_found

    coordinator.fail_over()
    assert coordinator.state() == "Dead"
    assert coordinator.committed() is None


def test_a_group_with_members_is_not_deleted(coordinator: Coordinator) -> None:
    coordinator.stable()
    assert coordinator.delete() is ErrorCode.non_empty_group


def delete_offsets(coordinator: Coordinator, *wanted: tuple[str, int]) -> tuple[ErrorCode, list[ErrorCode]]:
    reply = new_reply()
    coordinator.carry_out(coordinator.shard.delete_offsets("g", wanted, reply))
    outcome: tuple[ErrorCode, list[ErrorCode]] = reply.response
    return outcome


def test_offsets_of_topics_that_the_group_reads_are_not_deleted(coordinator: Coordinator) -> None:
    assert delete_offsets(coordinator, ("t", 0))[0] is ErrorCode.group_id_not_found
    (leader,) = coordinator.stable()
    coordinator.commit_as(leader, 5, topic="t")
    coordinator.commit_as(leader, 6, topic="u")

    error, outcomes = delete_offsets(coordinator, ("t", 0), ("u", 0))
    assert (error, outcomes) == (ErrorCode.none, [ErrorCode.group_subscribed_to_topic, ErrorCode.none])
    assert coordinator.committed("t") == 5
    assert coordinator.committed("u") is None


def test_offsets_of_groups_that_are_no_consumers_are_not_deleted_while_they_have_members(
    coordinator: Coordinator,
) -> None:
    coordinator.stable(protocol_type="connect")
    assert delete_offsets(coordinator, ("t", 0))[0] is ErrorCode.non_empty_group


def test_deleted_topics_drop_their_offsets(coordinator: Coordinator) -> None:
    coordinator.commit(5, topic="t")
    coordinator.commit(6, topic="u")
    coordinator.carry_out(coordinator.shard.on_topics_deleted(["t"]))
    coordinator.fail_over()

    assert coordinator.committed("t") is None
    assert coordinator.committed("u") == 6
