"""What came of a suite, in numbers: a line at its end, and a table of all of them, as docs/foreign.md has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .suite import Outcome, Result

HEAD = ("suite", "version", "broker", "passed", "failed", "skipped", "expected", "not the measure", "seconds")


@dataclass(frozen=True, slots=True)
class Summary:
    """`expected` and `not_the_measure` count the failed and skipped tests that are on the list of that name."""

    suite: str
    version: str
    broker: str
    passed: int
    failed: int
    skipped: int
    expected: int
    not_the_measure: int
    seconds: int
    is_good: bool

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        good = "as expected" if self.is_good else "NOT AS EXPECTED"
        return f"{self.suite}: {counts} in {self.seconds} s, {good}"


def summarize(
    name: str,
    version: str,
    broker: str,
    results: Sequence[Result],
    *,
    expected: Collection[str],
    not_the_measure: Collection[str],
    seconds: float,
    is_good: bool,
) -> Summary:
    counts = Counter(result.outcome for result in results)
    others = [result.name for result in results if result.outcome is not Outcome.PASSED]
    return Summary(
        suite=name,
        version=version,
        broker=broker,
        passed=counts[Outcome.PASSED],
        failed=counts[Outcome.FAILED],
        skipped=counts[Outcome.SKIPPED],
        expected=sum(name in expected for name in others),
        not_the_measure=sum(name in not_the_measure for name in others),
        seconds=round(seconds),
        is_good=is_good,
    )


def table(summaries: Iterable[Summary]) -> str:
    """In Markdown."""
    rows: list[Sequence[object]] = [HEAD, ["---"] * len(HEAD)]
    rows += [
        (
            s.suite,
            s.version,
            s.broker,
            s.passed,
            s.failed,
            s.skipped,
            s.expected,
            s.not_the_measure,
            s.seconds,
        )
        for s in summaries
    ]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
