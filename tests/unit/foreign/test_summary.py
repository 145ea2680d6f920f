"""A suite in numbers."""

from __future__ import annotations

from foreign.suite import Outcome, Result
from foreign.summary import summarize, table

RESULTS = [
    Result("good", Outcome.PASSED),
    Result("listed", Outcome.FAILED),
    Result("skipped", Outcome.SKIPPED),
    Result("bad", Outcome.FAILED),
]


def test_failed_and_skipped_tests_are_counted_by_their_lists() -> None:
    summary = summarize(
        *("suite", "1.0", "Moldau", RESULTS),
        expected={"listed", "good"},
        not_the_measure={"skipped"},
        seconds=1.6,
        is_good=False,
    )
    assert str(summary) == "suite: 1 passed, 2 failed, 1 skipped in 2 s, NOT AS EXPECTED"
    assert table([summary]).splitlines()[-1] == "| suite | 1.0 | Moldau | 1 | 2 | 1 | 1 | 1 | 2 |"
