"""The lists of tests that may fail: read strictly, judged in both directions, and only ever shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign import lists
from foreign.__main__ import SUITES
from foreign.lists import BadList, judge, parse_list, read_list
from foreign.suite import Outcome, Result

LISTS = Path(lists.__file__).parent
LENGTHS = {"franz-go": 5, "librdkafka": 0, "kafka-python": 1, "node-rdkafka": 0}
"""How many expected failures each suite has. Lower it along with the list; nothing raises it."""

PASSED = Result("a test", Outcome.PASSED)
FAILED = Result("a test", Outcome.FAILED)
SKIPPED = Result("a test", Outcome.SKIPPED)
LISTED = {"a test": "no transactions"}


def test_a_line_is_a_name_and_a_reason() -> None:
    text = "# what is missing\n\nConsumer group should commit — no transactions — yet\n"
    assert parse_list(text, "x.txt") == {"Consumer group should commit": "no transactions — yet"}


@pytest.mark.parametrize("line", ["a test", "a test — ", " — no transactions", "a test - no transactions"])
def test_a_line_without_a_reason_is_refused(line: str) -> None:
    with pytest.raises(BadList, match=r"x\.txt:1"):
        parse_list(line, "x.txt")


def test_a_name_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(BadList, match=r"x\.txt:2: a test stands there twice"):
        parse_list("a test — one\na test — two", "x.txt")


def test_what_follows_a_number_of_brokers_counts_for_so_many_only() -> None:
    text = "a — always\n[BROKERS=1]\nb — alone\n[BROKERS=3]\nc — of three\n"
    assert list(parse_list(text, "x.txt")) == ["a", "b"]
    assert list(parse_list(text, "x.txt", 3)) == ["a", "c"]


def test_a_suite_without_failures_needs_no_file(tmp_path: Path) -> None:
    assert read_list(tmp_path / "none.txt") == {}


@pytest.mark.parametrize("result", [FAILED, SKIPPED])
def test_what_does_not_pass_needs_a_line(result: Result) -> None:
    assert judge([result], {}, is_whole=True).unexpected == ("a test",)
    assert judge([result], LISTED, is_whole=True).is_good


def test_an_expected_failure_that_passes_is_wrong() -> None:
    assert judge([PASSED], {}, is_whole=True).is_good
    assert judge([PASSED], LISTED, is_whole=True).passed_after_all == ("a test",)


def test_a_line_for_no_test_is_wrong_where_all_tests_ran() -> None:
    other = Result("another test", Outcome.PASSED)
    assert judge([other], LISTED, is_whole=True).unknown == ("a test",)
    assert judge([other], LISTED, is_whole=False).is_good


@pytest.mark.parametrize("suite", SUITES)
def test_the_lists_of_a_suite_can_be_read_and_share_no_test(suite: str) -> None:
    for brokers in (1, 3):
        expected = read_list(LISTS / "expected" / f"{suite}.txt", brokers)
        assert not expected.keys() & read_list(LISTS / "not_the_measure" / f"{suite}.txt", brokers).keys()


@pytest.mark.parametrize("suite", SUITES)
def test_expected_failures_only_become_fewer(suite: str) -> None:
    for brokers in (1, 3):
        assert len(read_list(LISTS / "expected" / f"{suite}.txt", brokers)) == LENGTHS[suite]


@pytest.mark.parametrize("folder", ["expected", "not_the_measure"])
def test_every_list_belongs_to_a_suite(folder: str) -> None:
    assert {path.stem for path in (LISTS / folder).glob("*")} <= SUITES.keys()
