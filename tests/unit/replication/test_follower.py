"""What a follower does with its leader's answers. R4; KIP-101, KIP-279."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.log.epochs import LeaderEpochs
from moldau.replication.follower import Next, Step, after_answer, after_bounds, fetch_position


def answer(
    error: ErrorCode = ErrorCode.none,
    *,
    records: bool = False,
    diverging: tuple[int, int] | None = None,
    epochs: list[tuple[int, int]] | None = None,
    next_offset: int = 100,
) -> Step:
    return after_answer(
        error,
        has_records=records,
        diverging=diverging,
        epochs=LeaderEpochs(epochs if epochs is not None else [(1, 0), (3, 40), (5, 80)]),
        next_offset=next_offset,
        high_watermark=30,
    )


def test_records_are_appended_and_an_empty_answer_changes_nothing() -> None:
    assert answer(records=True).next is Next.APPEND
    assert answer().next is Next.GO_ON


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        ((5, 90), 90),  # the leader's part of our last epoch is shorter
        ((5, 300), 100),  # never beyond our end
        ((3, 60), 60),  # it never had our last epoch
        ((4, 70), 80),  # we never had that one: as far as our epoch before it goes; the next fetch tells more
        ((2, 50), 40),
        ((-1, -1), 30),  # it knows no epoch that old
    ],
)
def test_a_follower_truncates_to_where_the_histories_part(diverging: tuple[int, int], offset: int) -> None:
    assert answer(diverging=diverging) == Step(Next.TRUNCATE, offset)


def test_it_never_truncates_by_the_high_watermark_where_epochs_are_known() -> None:
    assert answer(diverging=(5, 95)).offset == 95


def test_an_offset_that_the_leader_does_not_have_is_looked_into() -> None:
    assert answer(ErrorCode.offset_out_of_range).next is Next.ASK_BOUNDS
    assert after_bounds(200, 300, 100) == Step(Next.START_OVER, 200)
    assert after_bounds(0, 60, 100) == Step(Next.TRUNCATE, 60)
    assert after_bounds(0, 300, 100).next is Next.GO_ON


@pytest.mark.parametrize(
    "error", [ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch]
)
def test_a_leader_that_does_not_lead_is_asked_again_later(error: ErrorCode) -> None:
    assert answer(error).next is Next.WAIT


def test_a_fetch_tells_the_epoch_of_the_last_record() -> None:
    assert fetch_position(LeaderEpochs([(1, 0), (5, 80)]), 100) == (100, 5)
    assert fetch_position(LeaderEpochs(), 0) == (0, -1)
