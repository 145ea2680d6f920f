"""Which replicas and brokers the throttle of a move names, and what is left when it is over."""

from __future__ import annotations

import click
import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.throttles import (
    FOLLOWERS,
    LEADERS,
    RATES,
    Rate,
    Standing,
    added,
    all_removed,
    planned_copies,
    removed,
    text_of,
    throttles_of,
)

ORDERS = [TopicPartition("orders", number) for number in range(3)]
BEFORE = {ORDERS[0]: (1, 2), ORDERS[1]: (2, 3), ORDERS[2]: (3, 1)}
WANTED = {ORDERS[0]: (1, 4), ORDERS[1]: (3, 2), ORDERS[2]: (3,)}
NOTHING = Standing({}, {})


def test_exactly_the_replicas_that_are_copied_are_throttled() -> None:
    """Another order of replicas and fewer of them copy nothing."""
    throttles = throttles_of(planned_copies(BEFORE, WANTED))
    assert throttles.lists == {"orders": {LEADERS: ["0:1", "0:2"], FOLLOWERS: ["0:4"]}}
    assert throttles.brokers == (1, 2, 4)


def test_what_others_have_throttled_stays() -> None:
    throttles = throttles_of(planned_copies(BEFORE, WANTED))
    others = Standing({"orders": {LEADERS: ["7:1", "0:1"]}, "other": {FOLLOWERS: ["*"]}}, {})
    assert added(others, throttles) == {"orders": {LEADERS: "7:1,0:1,0:2", FOLLOWERS: "0:4"}}
    with_ours = Standing({"orders": {LEADERS: ["7:1", "0:1", "0:2"], FOLLOWERS: ["0:4"]}}, {})
    assert removed(with_ours, throttles) == {"orders": {LEADERS: "7:1", FOLLOWERS: None}}
    assert removed(NOTHING, throttles) == {}


def test_where_everything_is_throttled_nothing_is_added() -> None:
    throttles = throttles_of(planned_copies(BEFORE, WANTED))
    every = Standing({"orders": {LEADERS: ["*"], FOLLOWERS: ["*"]}}, {})
    assert added(every, throttles) == removed(every, throttles) == {}
    assert all_removed(every) == {"orders": {LEADERS: None, FOLLOWERS: None}}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50MB/s", 50_000_000),
        ("1.5 MB", 1_500_000),
        ("512KiB/s", 524_288),
        ("2gib", 2 * 1024**3),
        ("1000", 1000),
        ("7B/s", 7),
        ("none", 0),
    ],
)
def test_rates_are_written_as_people_do(text: str, rate: int) -> None:
    assert Rate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "0.1", "50 apples", "1e9", "99999999999999999999GB"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Rate().convert(text, None, None)


def test_what_is_throttled_is_said_in_a_line() -> None:
    rates = {number: dict.fromkeys(RATES, 5 * 1024**2) for number in (1, 3)}
    standing = Standing({"orders": {LEADERS: ["0:1"]}}, rates)
    assert text_of(standing) == "brokers 1, 3 at 5.0 MiB/s, replicas of orders"
    assert text_of(Standing({"a": {}, "b": {}}, {})) == "replicas of 2 topics"
