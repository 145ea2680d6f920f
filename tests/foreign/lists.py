"""The lists of tests that may fail, and the verdict on a run's results against one.

A line is `test name — reason`; empty lines and lines that begin with `#` are left alone. On Apache Kafka the list is
what is not the measure; on Moldau what is expected to fail. A test that is skipped has not passed: a suite that leaves
out what the broker does not serve proves nothing, so it needs its line like a failure. What follows `[BROKERS=3]` on a
line of its own counts for clusters of so many brokers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .suite import Outcome, Result

SEPARATOR = " — "
_SECTION = re.compile(r"\[BROKERS=(\d+)\]")


class BadList(Exception):
    """A list that cannot be read, with its place."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run: nothing, where all three are empty."""

    unexpected: tuple[str, ...]
    passed_after_all: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not (self.unexpected or self.passed_after_all or self.unknown)


def read_list(path: Path, brokers: int = 1) -> dict[str, str]:
    """Test name -> reason. A suite without such failures has no file."""
    return parse_list(path.read_text(), path.name, brokers) if path.exists() else {}


def parse_list(text: str, where: str, brokers: int = 1) -> dict[str, str]:
    reasons: dict[str, str] = {}
    counts = True
    for number, line in enumerate(text.splitlines(), 1):
        if section := _SECTION.fullmatch(line):
            counts = int(section[1]) == brokers
            continue
        if not counts or not line.strip() or line.startswith("#"):
            continue
        name, _, reason = (part.strip() for part in line.partition(SEPARATOR))
        if not name or not reason:
            raise BadList(f"{where}:{number}: not `test name{SEPARATOR}reason`")
        if name in reasons:
            raise BadList(f"{where}:{number}: {name} stands there twice")
        reasons[name] = reason
    return reasons


def judge(results: Iterable[Result], may_fail: Mapping[str, str], *, is_whole: bool) -> Verdict:
    """The verdict on results. After a run of the whole suite, an entry without a test is wrong, too."""
    results = list(results)
    names = {result.name for result in results}
    return Verdict(
        unexpected=tuple(
            result.name
            for result in results
            if result.outcome is not Outcome.PASSED and result.name not in may_fail
        ),
        passed_after_all=tuple(
            result.name for result in results if result.outcome is Outcome.PASSED and result.name in may_fail
        ),
        unknown=tuple(name for name in may_fail if name not in names) if is_whole else (),
    )
