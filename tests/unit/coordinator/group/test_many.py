"""Requests and groups with very many elements: the steps that a coordinator takes for them are bounded."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.limits import (
    COORDINATOR_ELEMENTS_PER_STEP,
    GROUP_PROTOCOLS_MAX,
    OFFSETS_PER_TRANSACTION_MAX,
)
from moldau.coordinator.group.messages import Commit, OffsetToCommit
from moldau.coordinator.group.shard import OFFSETS_LOOKED_AT_PER_TURN
from moldau.coordinator.shard import Decision, Producer

from .support import Coordinator, new_reply

STEP = COORDINATOR_ELEMENTS_PER_STEP
PRODUCER = Producer(7, 0)


class Steps(Coordinator):
    """Remembers how many records each decision had."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        super().__init__()

    def carry_out(self, decision: Decision) -> None:
        self.sizes.append(len(decision.records))
        super().carry_out(decision)

    def make_empty(self, group_id: str) -> None:
        """A group that had a member."""
        member = self.join(group_id)
        self.sleep(0)
        self.leave((member.response.member_id, None), group_id=group_id)

    def commit_many(self, count: int, first: int = 0, group_id: str = "g") -> None:
        self.carry_out(self.shard.commit(self._commit(count, first, group_id), new_reply(), self.moment))
        self.sizes.clear()

    def add_to_transaction(self, count: int, first: int = 0) -> list[ErrorCode]:
        reply = new_reply()
        commit = self._commit(count, first, "g")
        self.carry_out(self.shard.commit_in_transaction(commit, PRODUCER, reply, self.moment))
        errors: list[ErrorCode] = reply.response
        return errors

    def _commit(self, count: int, first: int, group_id: str) -> Commit:
        offsets = tuple(OffsetToCommit("t", first + number, 1, 0, "", None) for number in range(count))
        return Commit(group_id, "", None, -1, offsets)


@pytest.fixture
def coordinator() -> Steps:
    return Steps()


def test_a_group_with_many_offsets_is_deleted_in_steps(coordinator: Steps) -> None:
    coordinator.make_empty("g")
    coordinator.commit_many(2 * STEP + 10)
    coordinator.add_to_transaction(10, first=5 * STEP)
    coordinator.sizes.clear()
    answers = []
    for _ in range(3):
        reply = new_reply()
        coordinator.carry_out(coordinator.shard.delete("g", reply))
        answers.append(reply.response)

    assert answers == [None, None, ErrorCode.none]
    assert max(coordinator.sizes) == STEP
    assert coordinator.shard.list_groups() == []
    assert not coordinator.shard._offsets.has_unstable("g")


def test_many_offsets_expire_in_steps(coordinator: Steps) -> None:
    coordinator.make_empty("g")
    coordinator.commit_many(2 * STEP + 10)
    coordinator.sleep(coordinator.settings.offsets_retention_ms + 2 * coordinator.settings.expiry_interval_ms)

    assert coordinator.shard.partitions_of("g") == {}
    assert coordinator.shard.list_groups() == []
    assert max(coordinator.sizes) == STEP


def test_one_turn_looks_at_so_many_offsets_for_what_has_expired(coordinator: Steps) -> None:
    for number in range(5):
        group_id = f"g{number}"
        coordinator.make_empty(group_id)
        coordinator.commit_many(OFFSETS_LOOKED_AT_PER_TURN // 2, group_id=group_id)
    list(coordinator.shard._expire(coordinator.moment))

    assert len(coordinator.shard._to_expire) == 2


def test_a_transaction_commits_no_more_offsets_than_its_marker_can_make_count_at_once(
    coordinator: Steps,
) -> None:
    assert set(coordinator.add_to_transaction(OFFSETS_PER_TRANSACTION_MAX)) == {ErrorCode.none}
    assert coordinator.add_to_transaction(1, first=OFFSETS_PER_TRANSACTION_MAX) == [
        ErrorCode.unknown_server_error
    ]


def test_a_member_of_a_classic_group_names_so_many_protocols_and_no_more(coordinator: Steps) -> None:
    most = tuple((f"p{number}", b"") for number in range(GROUP_PROTOCOLS_MAX))
    first = coordinator.join("a", protocols=most)
    coordinator.sleep(0)
    assert first.response.error_code is ErrorCode.none
    reply = coordinator.join("b", protocols=(*most, ("further", b"")))
    assert reply.response.error_code is ErrorCode.inconsistent_group_protocol
