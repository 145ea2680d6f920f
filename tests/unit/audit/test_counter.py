"""A producer's totals: each window once, whatever is sent again, given up or comes late."""

from __future__ import annotations

import json

from moldau.audit.comparison import latest
from moldau.audit.counter import KEPT_MS, Counter
from moldau.audit.messages import Counts, Life, Origin, parse
from moldau.audit.tally import Tally

ORIGIN = Origin("one", "shop", "host")
MINUTE_MS = 60_000


def count(counter: Counter, topic: str, minute: int, number: int = 1, now_ms: int = 0) -> list[Counts]:
    given_up = [
        counter.count(topic, minute * MINUTE_MS + at, None, b"%d" % at, now_ms) for at in range(number)
    ]
    return [counts for counts in given_up if counts is not None]


def totals(messages: list[Counts]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for counts in latest(messages):
        place = counts.topic, counts.window_ms // MINUTE_MS
        found[place] = found.get(place, 0) + counts.tally.count
    return found


def test_totals_that_are_sent_again_in_any_order_count_once() -> None:
    counter = Counter(ORIGIN, MINUTE_MS)
    count(counter, "orders", 1, 3)
    first = counter.unpublished()
    again = counter.unpublished()
    count(counter, "orders", 1, 2)
    count(counter, "orders", 2, 4)
    last = counter.unpublished()
    assert totals([*last, *again, *first, *first]) == {("orders", 1): 5, ("orders", 2): 4}


def test_what_is_published_is_not_sent_again_until_it_changes() -> None:
    counter = Counter(ORIGIN, MINUTE_MS)
    count(counter, "orders", 1, 3)
    (counts,) = counter.unpublished()
    assert not counter.is_there(counts)
    count(counter, "orders", 1)
    counter.published(counts)
    assert counter.is_there(counts)
    (counts,) = counter.unpublished()
    assert counts.tally.count == 4
    counter.published(counts)
    assert counter.unpublished() == []


def test_beyond_the_bound_the_quietest_window_is_given_up_and_a_later_record_begins_a_new_part() -> None:
    counter = Counter(ORIGIN, MINUTE_MS, windows_max=2)
    sent = count(counter, "orders", 1, 2)
    sent += count(counter, "orders", 2, 3)
    sent += count(counter, "orders", 1)
    sent += count(counter, "orders", 3)  # gives up the second minute
    assert totals(sent) == {("orders", 2): 3}
    sent += count(counter, "orders", 2, 5)  # and the first
    assert len(counter) == 2
    sent += counter.unpublished()
    assert totals(sent) == {("orders", 1): 3, ("orders", 2): 8, ("orders", 3): 1}


def test_windows_that_are_published_and_quiet_are_forgotten() -> None:
    counter = Counter(ORIGIN, MINUTE_MS)
    count(counter, "orders", 1)
    count(counter, "orders", 2)
    first, _second = counter.unpublished()
    counter.published(first)
    counter.forget(KEPT_MS - 1)
    assert len(counter) == 2
    counter.forget(KEPT_MS)
    assert len(counter) == 1
    assert totals([first, *count(counter, "orders", 1), *counter.unpublished()]) == {
        ("orders", 1): 2,
        ("orders", 2): 1,
    }


def test_messages_are_read_as_they_were_written() -> None:
    counts = Counts(ORIGIN, 2, 3, "orders", MINUTE_MS, MINUTE_MS, Tally())
    counts.tally.add((1 << 64) - 5)
    life = Life(ORIGIN, 7, 1_000, 10_000, closed=True)
    assert parse(json.loads(counts.value())) == counts
    assert parse(json.loads(life.value())) == life
