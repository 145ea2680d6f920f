"""Build a suite where it is not built yet, start a broker for it, run its tests and print a line for each.

The broker and every process of the suite end with the run, however it ends; the data is thrown away. What the tests
printed stays in the cache folder until it runs again.
"""

from __future__ import annotations

import fcntl
import fnmatch
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .brokers import Brokers, fresh_brokers
from .lists import BadList, Verdict, judge, read_list
from .processes import run as run_command
from .suite import Outcome, Result, Suite
from .summary import Summary, summarize

HERE = Path(__file__).parent
BUILT = "built"
NOT_THE_MEASURE = "not the measure"
CI_TIMEOUT_S = 900
"""The most that a suite's part in CI may take, several times what it needs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a suite to run, and on which brokers."""

    on_kafka: bool = False
    brokers: int = 1
    is_ci: bool = False
    pattern: str = "*"

    @property
    def is_whole(self) -> bool:
        return not self.is_ci and self.pattern == "*"

    def holds(self, suite: Suite, run: str) -> bool:
        is_left_out = (self.is_ci and run in suite.not_in_ci) or (
            self.brokers > 1 and run in suite.for_one_broker
        )
        return fnmatch.fnmatchcase(run, self.pattern) and not is_left_out


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "foreign"


def built(suite: Suite) -> Path:
    """The suite's folder, built at the first call on this machine. To build it anew, remove it."""
    folder = cache_folder() / f"{suite.name}-{suite.version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / BUILT).exists():
            print(f"{suite.name} {suite.version}: fetching and building in {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            suite.build(folder)
            (folder / BUILT).touch()
    return folder


def run_suite(suite: Suite, choice: Choice) -> Summary | None:
    """Run what was chosen, print the results and the verdict. None: there are no results to judge."""
    folder = built(suite)
    not_the_measure = read_list(HERE / "not_the_measure" / f"{suite.name}.txt", choice.brokers)
    expected = read_list(HERE / "expected" / f"{suite.name}.txt", choice.brokers)
    may_fail = not_the_measure if choice.on_kafka else expected
    left_out: Mapping[str, str] = {} if choice.on_kafka else not_the_measure
    began_s = time.monotonic()
    settings = {**suite.settings, **suite.kafka_settings} if choice.on_kafka else suite.settings
    with fresh_brokers(settings, suite.topics, on_kafka=choice.on_kafka, count=choice.brokers) as server:
        print(f"{suite.name} {suite.version} on {server.name}, {server.bootstrap_servers}", flush=True)
        results = list(_run_all(suite, folder, server, choice, left_out, may_fail))
        if server.ended():
            print(f"{server.name} ended during the suite:\n{server.output()}")
            return None
    if not results:
        print(f"{suite.name}: no test has such a name")
        return None
    verdict = judge([r for r in results if r.name not in left_out], may_fail, is_whole=choice.is_whole)
    _print_verdict(verdict)
    summary = summarize(
        *(suite.name, suite.version, server.name, results),
        expected=expected,
        not_the_measure=not_the_measure,
        seconds=time.monotonic() - began_s,
        is_good=verdict.is_good,
    )
    print(summary, flush=True)
    return summary


def _run_all(
    suite: Suite,
    folder: Path,
    server: Brokers,
    choice: Choice,
    left_out: Mapping[str, str],
    may_fail: Mapping[str, str],
) -> Iterator[Result]:
    logs = (
        cache_folder() / "logs" / f"{suite.name}-{'kafka' if choice.on_kafka else 'moldau'}-{choice.brokers}"
    )
    whole_timeout_s = min(suite.whole_timeout_s, CI_TIMEOUT_S if choice.is_ci else math.inf)
    deadline_s = time.monotonic() + whole_timeout_s
    runs = suite.runs(folder)
    if gone := sorted((suite.not_in_ci | suite.for_one_broker).difference(runs)):
        raise BadList(f"left out, but no such run: {', '.join(gone)}")
    for run in [run for run in runs if choice.holds(suite, run)]:
        began_s = time.monotonic()
        log = logs / f"{re.sub('[^A-Za-z0-9._-]+', '_', run)[:120]}.txt"
        if run in left_out:
            results = [Result(run, Outcome.SKIPPED)]
        elif began_s > deadline_s:
            results = [Result(run, Outcome.FAILED, f"not run: {whole_timeout_s:g} s were up")]
        else:
            timeout_s = min(suite.run_timeout_s, deadline_s - began_s)
            with tempfile.TemporaryDirectory(prefix="moldau-foreign-") as scratch:
                address, is_ci = server.bootstrap_servers, choice.is_ci
                command = suite.command(folder, Path(scratch), run, address, is_ci=is_ci)
                results = suite.read(run, run_command(command, log, timeout_s))
        for result in results:
            if result.name in left_out:
                result = Result(result.name, Outcome.SKIPPED, f"{NOT_THE_MEASURE}: {left_out[result.name]}")
            _print_result(result, may_fail, time.monotonic() - began_s, log)
            yield result


def _print_result(result: Result, may_fail: Mapping[str, str], seconds: float, log: Path) -> None:
    remarks = [result.note] if result.note else []
    if result.outcome is not Outcome.PASSED and result.name in may_fail:
        remarks.append(f"expected: {may_fail[result.name]}")
    elif result.outcome is Outcome.FAILED:
        remarks.append(f"see {log}")
    tail = f"  ({'; '.join(remarks)})" if remarks else ""
    print(f"{result.outcome.value:8}{seconds:6.1f} s  {result.name}{tail}", flush=True)


def _print_verdict(verdict: Verdict) -> None:
    for name in verdict.unexpected:
        print(f"not expected to fail or to be skipped: {name}")
    for name in verdict.passed_after_all:
        print(f"passes, take it off the list: {name}")
    for name in verdict.unknown:
        print(f"on the list, but no such test: {name}")
