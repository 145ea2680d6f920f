"""The website example without Spark: what is generated, and what plain Python makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from example_files import load

generate = load("website_activity", "generate")
check = load("website_activity", "check")
plot = load("website_activity", "plot", check=check)
BEGIN_S = 1_794_000_000 // 3600 * 3600
BEGIN = datetime.fromtimestamp(BEGIN_S, UTC)


def view(seconds: float, visitor: str = "visitor-1") -> object:
    return check.View(visitor, "/", BEGIN + timedelta(seconds=seconds), 100)


def test_a_seed_gives_the_same_records_some_late_some_twice_some_none() -> None:
    sent = list(islice(generate.records(3, BEGIN_S, 5.0), 4000))
    assert sent == list(islice(generate.records(3, BEGIN_S, 5.0), 4000))
    values = [value for _, (_, value) in sent]
    views, rejected = check.views_of(iter(values))
    assert len(views) < len(values) - rejected, "some come twice"
    assert rejected == sum(value in generate.MALFORMED for value in values) > 0
    last, most_late = BEGIN, timedelta(0)
    for value in values:
        for one in check.views_of(iter([value]))[0]:
            last = max(last, one.time)
            most_late = max(most_late, last - one.time)
    assert timedelta(seconds=30) < most_late < timedelta(seconds=generate.LATE_S_MAX + 1)


def test_a_session_ends_by_a_pause_of_five_minutes() -> None:
    views = [view(0), view(299), view(598), view(898), view(10, "visitor-2")]
    found = check.sessions(views)
    assert found == {
        ("visitor-1", BEGIN): (BEGIN + timedelta(seconds=598 + 300), 3),
        ("visitor-1", BEGIN + timedelta(seconds=898)): (BEGIN + timedelta(seconds=898 + 300), 1),
        ("visitor-2", BEGIN + timedelta(seconds=10)): (BEGIN + timedelta(seconds=310), 1),
    }


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ([("closed", 3)], True),
        ([("closed", 3), ("open", 1)], True),
        ([("closed", 4)], False),
        ([("closed", 3), ("closed", 3)], False),
        ([("open", 1)], False),
        ([("closed", 3), ("open", 2)], False),
        ([("closed", 3), ("never", 1)], False),
    ],
)
def test_a_window_is_wrong_where_it_is_missing_there_twice_or_counts_otherwise(
    found: list[tuple[str, int]], is_right: bool
) -> None:
    report = check.Report()
    report.compare_windows("windows", found, {"closed": 3, "open": 1}, {"closed": 3})
    assert report.is_right is is_right


def test_the_picture_has_every_whole_minute_and_the_pages_that_are_seen_most() -> None:
    pages = ["/", "/", "/search", "/cart", "/checkout", "/help", "/product/1", "/product/2"]
    views = [
        {"page": page, "time": BEGIN + timedelta(minutes=minute, seconds=second), "load_ms": 100 + second}
        for minute in (0, 2)
        for second, page in enumerate(pages)
    ]
    views.append({"page": "/", "time": BEGIN + timedelta(minutes=3), "load_ms": 1})
    minutes = plot.whole_minutes(views)
    assert minutes == [BEGIN + timedelta(minutes=number) for number in range(3)]
    by_page = plot.views_by_page(views, minutes)
    assert by_page["/"] == [2, 0, 2] and by_page["2 others"] == [2, 0, 2]
    assert len(by_page) == plot.PAGES_SHOWN + 1
    medians = [of_minute[9] for of_minute in plot.load_ms(views, minutes)]
    assert (medians[0], medians[2]) == (103.5, 103.5) and medians[1] != medians[1]
