"""The change-data example without Spark: what is generated, and what plain Python makes of it."""

from __future__ import annotations

from itertools import islice, pairwise

from example_files import load

generate = load("change_data", "generate")
check = load("change_data", "check")
Change, Interval = check.Change, check.Interval
RED, BLUE = ("red",), ("blue",)


def test_a_seed_gives_the_same_records_some_once_more_some_none() -> None:
    sent = list(islice(generate.records(3), 3000))
    assert sent == list(islice(generate.records(3), 3000))
    assert set(generate.MALFORMED) <= set(sent)
    versions = [record.version for record in sent if record not in generate.MALFORMED]
    assert any(after < before for before, after in pairwise(versions)), "out of order"
    assert any(record.value is None for record in sent), "deletions"


def test_the_last_record_of_a_key_in_the_topic_has_its_newest_version() -> None:
    """So that compaction keeps the newest, whatever was sent again."""
    last: dict[tuple[str, str], int] = {}
    newest: dict[tuple[str, str], int] = {}
    for record in islice(generate.records(5), 3000):
        if record not in generate.MALFORMED:
            last[record.topic, record.key] = record.version
            newest[record.topic, record.key] = max(record.version, newest.get((record.topic, record.key), 0))
    assert last == newest


def test_the_latest_row_is_that_of_the_highest_version() -> None:
    changes = [
        Change(1, 5, RED),
        Change(1, 3, BLUE),
        Change(2, 1, RED),
        Change(2, 2, None),
        Change(2, 1, RED),
    ]
    assert check.latest(changes) == {1: RED}


def test_a_row_is_valid_until_the_next_change_that_is_another() -> None:
    changes = [
        Change(1, 1, RED),
        Change(1, 4, BLUE),
        Change(1, 2, RED),
        Change(1, 6, None),
        Change(1, 8, BLUE),
    ]
    assert list(check.history([*changes, *changes])) == [
        Interval(1, RED, 1, 4),
        Interval(1, BLUE, 4, 6),
        Interval(1, BLUE, 8, None),
    ]
