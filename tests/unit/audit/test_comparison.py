"""Which windows are named: what is lost or doubled on the way is, what is late or cannot be known is not."""

from __future__ import annotations

from moldau.audit.comparison import (
    By,
    Evidence,
    Part,
    Rules,
    State,
    Window,
    always,
    begins,
    by_topic,
    compare,
    document,
)
from moldau.audit.messages import Counts, Life, Origin
from moldau.audit.tally import Tally, identity

MINUTE_MS = 60_000
LATE_MS = 30_000
NOW_MS = 100 * MINUTE_MS
RULES = Rules(MINUTE_MS, LATE_MS, frozenset({"orders"}))
NO_LAKE = Rules(MINUTE_MS, LATE_MS)
SHOP = Origin("shop-1", "shop", "host-3")


def tally(numbers: list[int]) -> Tally:
    found = Tally()
    for number in numbers:
        found.add(identity(0, None, b"%d" % number))
    return found


def produced(numbers: list[int], minute: int = 1, length_ms: int = MINUTE_MS) -> Counts:
    return Counts(SHOP, minute, 1, "orders", minute * MINUTE_MS, length_ms, tally(numbers))


def part(numbers: list[int], by: By, minute: int = 1, last_offset: int = 9) -> Part:
    return Part("orders", 0, minute * MINUTE_MS, by, tally(numbers), 0, last_offset)


def topic(numbers: list[int], minute: int = 1, last_offset: int = 9) -> list[Part]:
    return [part(numbers, by, minute, last_offset) for by in By]


def lake(numbers: list[int], minute: int = 1, last_offset: int = 9) -> list[Part]:
    return [part(numbers, By.POSITIONS, minute, last_offset)]


def only(evidence: Evidence, rules: Rules = RULES, now_ms: int = NOW_MS) -> Window:
    (window,) = compare(evidence, rules, now_ms, always(now_ms))
    return window


ALL = list(range(10))


def test_a_window_in_which_all_agree_is_right() -> None:
    window = only(Evidence([produced(ALL)], [], topic(ALL), lake(ALL)))
    assert (window.state, window.produced, window.in_topic, window.in_lake) == (State.RIGHT, 10, 10, 10)
    assert not window.differs


def test_losses_and_doublings_are_named_where_they_happen() -> None:
    in_topic = only(Evidence([produced(ALL)], [], topic([*ALL[2:], 5]), lake([*ALL[2:], 5])))
    assert in_topic.state is State.WRONG
    assert (in_topic.lost_in_topic - in_topic.doubled_in_topic, in_topic.lost_in_lake) == (1, 0)
    in_lake = only(Evidence([produced(ALL)], [], topic(ALL), lake([*ALL[1:], 5])))
    assert in_lake.state is State.WRONG
    assert (in_lake.lost_in_topic, in_lake.lost_in_lake, in_lake.doubled_in_lake) == (0, 1, 1)
    found = document(in_lake)
    assert (found["state"], found["verdict"], found["lost"], found["doubled"]) == ("closed", "wrong", 1, 1)


def test_a_window_is_open_until_its_lateness_has_passed_and_everything_until_then_is_counted() -> None:
    evidence = Evidence([produced(ALL)], [], topic(ALL[1:]))
    over_ms = 2 * MINUTE_MS + LATE_MS
    assert only(evidence, NO_LAKE, over_ms - 1).state is State.OPEN
    assert only(evidence, NO_LAKE, over_ms).state is State.WRONG
    (behind,) = compare(evidence, NO_LAKE, NOW_MS, by_topic({"orders": over_ms - 1}))
    (unknown,) = compare(evidence, NO_LAKE, NOW_MS, by_topic({}))
    assert behind.state is unknown.state is State.OPEN


def test_what_the_lake_has_not_come_to_is_not_lost() -> None:
    evidence = Evidence([produced(ALL)], [], topic(ALL), lake(ALL[:5], last_offset=4))
    window = only(evidence)
    assert (window.state, window.notes) == (State.OPEN, ["the lake has not come so far"])
    evidence.in_topic = [*evidence.in_topic, *topic([20], 2, 10)]
    evidence.in_lake = [*evidence.in_lake, *lake([20], 2, 10)]
    evidence.produced = [produced(ALL), produced([20], 2)]
    first, second = compare(evidence, RULES, NOW_MS, always(NOW_MS))
    assert (first.state, first.lost_in_lake) == (State.WRONG, 5)
    assert second.state is State.RIGHT


def test_a_topic_whose_producers_publish_nothing_is_compared_with_the_lake_alone() -> None:
    window = only(Evidence([], [], topic(ALL), lake(ALL[1:])))
    assert (window.produced, window.state, window.lost_in_topic, window.lost_in_lake) == (
        None,
        State.WRONG,
        0,
        1,
    )
    assert only(Evidence([], [], topic(ALL), lake(ALL))).state is State.RIGHT


def test_what_a_killed_producer_had_not_published_is_a_doubt_but_a_loss_is_not() -> None:
    killed = Life(SHOP, 4, MINUTE_MS + 30_000, 10_000, closed=False)
    window = only(Evidence([produced(ALL[:7])], [killed], topic(ALL)), NO_LAKE)
    assert (window.state, window.doubled) == (State.UNSURE, 3)
    assert window.notes == ["the producer shop on host-3 was killed"]
    closed = Life(SHOP, 5, MINUTE_MS + 40_000, 10_000, closed=True)
    assert only(Evidence([produced(ALL[:7])], [closed, killed], topic(ALL)), NO_LAKE).state is State.WRONG
    assert only(Evidence([produced(ALL)], [killed], topic(ALL[:7])), NO_LAKE).state is State.WRONG
    long_ago = Life(SHOP, 4, -10 * MINUTE_MS, 10_000, closed=False)
    assert only(Evidence([produced(ALL[:7])], [long_ago], topic(ALL)), NO_LAKE).state is State.WRONG


def test_records_that_were_gone_before_the_audit_began_are_a_doubt() -> None:
    evidence = Evidence([produced(ALL)], [], topic(ALL[5:]))
    assert only(evidence, NO_LAKE).state is State.WRONG
    evidence.begun_ms = begins([("orders", 0, 7, 2 * MINUTE_MS), ("orders", 0, 5, MINUTE_MS)])
    assert evidence.begun_ms == {"orders": MINUTE_MS}
    assert only(evidence, NO_LAKE).state is State.UNSURE
    assert begins([("orders", 0, 0, MINUTE_MS)]) == {}


def test_counts_by_windows_of_another_length_are_a_doubt() -> None:
    window = only(Evidence([produced(ALL, length_ms=10_000)], [], topic(ALL)), NO_LAKE)
    assert (window.produced, window.state) == (None, State.UNSURE)
    assert window.notes == ["a producer counts by windows of 10 s"]


def test_a_surplus_waits_for_the_word_of_a_producer_that_may_still_publish() -> None:
    over_ms = 2 * MINUTE_MS + LATE_MS
    earlier = Life(SHOP, 4, over_ms - 1, 10_000, closed=False)
    evidence = Evidence([produced(ALL[:7])], [earlier], topic(ALL))
    assert only(evidence, NO_LAKE, over_ms + 10_000).state is State.OPEN
    evidence.lives = [earlier, Life(SHOP, 5, over_ms, 10_000, closed=False)]
    assert only(evidence, NO_LAKE, over_ms + 10_000).state is State.WRONG
    evidence.lives = [earlier]
    assert only(evidence, NO_LAKE, over_ms + 60_000).state is State.UNSURE
    evidence.in_topic = topic(ALL[:5])
    assert only(evidence, NO_LAKE, over_ms + 10_000).state is State.WRONG, "a loss needs no other word"
