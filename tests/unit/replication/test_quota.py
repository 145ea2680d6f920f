"""The rate of throttled replication over its window, in a time that the test makes. KIP-73."""

from __future__ import annotations

import pytest

from moldau.replication.quota import QuotaWindow, ReplicationQuota, throttled_partitions

WINDOW = QuotaWindow(11, 1.0)


def quota(limit: int | None) -> ReplicationQuota:
    made = ReplicationQuota(WINDOW)
    made.limit = limit
    return made


def copied_in(limit: int, total_bytes: int, answer_bytes: int) -> float:
    """How long a copy takes that asks for as much as it gets whenever there is room, and is answered at once."""
    one, now_s, copied = quota(limit), 0.0, 0
    while copied < total_bytes:
        now_s += one.room_in_s(now_s)
        assert not one.is_exceeded(now_s + 1e-6), "there is room when it says so"
        one.record(answer_bytes, now_s)
        copied += answer_bytes
    return now_s


@pytest.mark.parametrize(
    ("limit", "total", "answer"),
    [
        (5_000_000, 50_000_000, 1_000_000),
        (5_000_000, 200_000_000, 10_000_000),
        (1_000_000, 60_000_000, 3_000_000),
        (20_000, 2_000_000, 16_000),
    ],
)
def test_a_copy_takes_as_long_as_its_rate_says(limit: int, total: int, answer: int) -> None:
    took_s = copied_in(limit, total, answer)
    assert (total - answer) / limit - WINDOW.sample_s <= took_s <= 1.15 * total / limit


def test_without_a_limit_nothing_is_exceeded() -> None:
    one = quota(None)
    one.record(10**12, 0.0)
    assert not one.is_exceeded(0.0)
    assert one.room_in_s(0.0) == 0.0


def test_what_the_window_has_passed_counts_no_more() -> None:
    one = quota(10)
    one.record(10_000, 0.0)
    assert one.is_exceeded(10.9)
    assert one.room_in_s(1.0) == pytest.approx(10.0)
    assert not one.is_exceeded(11.0)
    assert one.rate(11.0) == 0.0


def test_what_is_about_to_be_recorded_counts_with_the_rest() -> None:
    one = quota(100)
    one.record(60, 0.0)
    assert not one.is_exceeded(0.5, 40)
    assert one.is_exceeded(0.5, 41)
    assert not one.is_exceeded(0.5)


def test_another_limit_counts_at_once() -> None:
    one = quota(10)
    one.record(1_000, 0.0)
    assert one.is_exceeded(1.0)
    one.limit = 1_000
    assert not one.is_exceeded(1.0)
    one.limit = 100
    assert one.room_in_s(1.0) == pytest.approx(9.0)


@pytest.mark.parametrize("limit", [0, 1])
def test_the_smallest_rates_let_one_answer_through_in_each_window(limit: int) -> None:
    """As Kafka's: a move that is throttled to nothing crawls, and does not stand still."""
    one = quota(limit)
    assert not one.is_exceeded(0.0)
    one.record(1_000_000, 0.0)
    assert one.room_in_s(0.0) == pytest.approx(11.0)
    assert not one.is_exceeded(11.0)


def test_however_much_is_recorded_few_samples_are_kept() -> None:
    one = quota(1)
    for number in range(100_000):
        one.record(1, number / 100)
    assert len(one._samples) <= WINDOW.samples + 1
    assert one.rate(1_000.0) == pytest.approx(100, rel=0.1)


def test_replicas_are_throttled_by_partition_and_broker() -> None:
    named = throttled_partitions(("0:1", "1:2", "3:2", "7:02", "", f"{'9' * 5000}:2"), 2)
    assert [index for index in range(10) if index in named] == [1, 3, 7]
    assert 5 in throttled_partitions(("*",), 2)
    assert 0 not in throttled_partitions((), 2)
