"""node-rdkafka's end-to-end suite (`e2e/`), from the npm package, whose native part is compiled at installation.

Mocha runs it one test at a time, chosen by its full title, with the hooks around it; where each test goes on from the
one before it (`TOGETHER`), a whole group of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from .processes import fetch, make, tool
from .suite import Command, Ended, Outcome, Result, Suite, alone

MOCHA_VERSION = "10.8.2"
PACKAGE = Path("node_modules", "node-rdkafka")
BUILD_TIMEOUT_S = 1800
TEST_TIMEOUT_MS = "60000"
BY_CHANCE = "Consumer committed and position should obey the timeout"
"""Left out: it fails where the broker answers faster than a time-out of nothing."""
TOGETHER = frozenset({"Transactional Producer"})
"""Groups of tests, by the beginning of their titles."""
_NOTE_LENGTH_MAX = 160


class NodeRdkafka(Suite):
    name = "node-rdkafka"
    version = "3.6.1"
    settings: ClassVar[Mapping[str, object]] = {"auto.create.topics.enable": "true"}
    topics = ("test", "test2", "test3", "test4", "test5", "test6")
    run_timeout_s = 120
    whole_timeout_s = 1800
    is_in_ci = False  # its installation compiles for minutes, and librdkafka is tested there by its own suite

    def build(self, folder: Path) -> None:
        tool("g++", "node-rdkafka's suite")
        npm = tool("npm", "node-rdkafka's suite")
        wanted = {"node-rdkafka": self.version, "mocha": MOCHA_VERSION}
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": wanted}))
        log = folder / "build.log"
        # Its script compiles, with one job only; newer versions of npm do not run it by themselves.
        fetch([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder, log=log)
        make([npm, "run", "install"], folder / PACKAGE, log=log, timeout_s=BUILD_TIMEOUT_S)

    def _mocha(self, folder: Path, *options: str) -> list[str]:
        specs = sorted(str(spec) for spec in (folder / PACKAGE / "e2e").glob("*.spec.js"))
        mocha = str(folder / "node_modules" / "mocha" / "bin" / "mocha.js")
        return [
            tool("node", "node-rdkafka's suite"),
            mocha,
            "--exit",
            "--timeout",
            TEST_TIMEOUT_MS,
            *options,
            *specs,
        ]

    def runs(self, folder: Path) -> list[str]:
        report = folder / "titles.json"
        words = self._mocha(
            folder, "--dry-run", "--reporter", "json", "--reporter-option", f"output={report}"
        )
        make(words, folder, log=folder / "titles.log", timeout_s=60)
        return runs_of(titles(json.loads(report.read_text())))

    def command(self, folder: Path, scratch: Path, run: str, address: str, *, is_ci: bool) -> Command:
        end = " " if run in TOGETHER else "$"
        words = self._mocha(folder, "--reporter", "json", "--grep", f"^{re.escape(run)}{end}")
        return Command(words, scratch, {"KAFKA_HOST": address})

    def read(self, run: str, ended: Ended) -> list[Result]:
        return read_mocha(run, ended)


def titles(report: Mapping[str, Any]) -> list[str]:
    """The full titles of the tests of a report, each once: a suite may use one twice."""
    return list(dict.fromkeys(test["fullTitle"] for test in report["tests"]))


def runs_of(titles: list[str]) -> list[str]:
    """A run for each title, or for the group that it belongs to."""
    groups = {
        title: next((group for group in TOGETHER if title.startswith(f"{group} ")), title) for title in titles
    }
    return [run for run in dict.fromkeys(groups.values()) if run != BY_CHANCE]


def read_mocha(run: str, ended: Ended) -> list[Result]:
    """The results in mocha's JSON, at the end of what was printed; a hook that fails is a failure, too."""
    begin = ended.output.rfind('{\n  "stats": {')
    if begin < 0 or ended.code is None:
        return alone(run, ended, None)
    report, _ = json.JSONDecoder().raw_decode(ended.output, begin)
    results = {}
    for part, outcome in (
        ("passes", Outcome.PASSED),
        ("pending", Outcome.SKIPPED),
        ("failures", Outcome.FAILED),
    ):
        for test in report[part]:
            name = test["fullTitle"] if run in TOGETHER else run
            note = " ".join(test.get("err", {}).get("message", "").split())
            results[name] = Result(name, outcome, note[:_NOTE_LENGTH_MAX])
    return list(results.values()) or alone(run, ended, None)
