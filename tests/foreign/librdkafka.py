"""librdkafka's own tests, from the copy of its sources in Confluent's npm package for JavaScript.

They run as `test-runner -Q -E -L`: quick, without emulated sockets, without those that need no broker. Tests that are
empty when they are quick, though they say that they passed, run in full (`IN_FULL`).
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .processes import make, tool
from .suite import Command, Ended, Outcome, Result, Suite

PACKAGE = "@confluentinc/kafka-javascript"
SOURCES = Path("package", "deps", "librdkafka")
KAFKA_VERSION = "4.3.1"
"""What the tests take the broker for: they leave out what a broker of this version cannot do."""
TIMEOUT_FACTOR = 2
IN_FULL = frozenset(
    {
        *(
            "0018",
            "0019",
            "0026",
            "0045",
            "0050",
            "0061",
            "0077",
            "0082",
            "0089",
            "0098",
            "0122",
            "0127",
            "0132",
        ),
        *("0170", "0171", "0172", "0174", "0175", "0177", "0181", "0185"),
    }
)
"""The numbers of tests with nothing but parts that `-Q` leaves out."""
TOPICS_TOOL = f'''#!/bin/sh
exec "{sys.executable}" -m moldau.bench.apache_kafka run topics "$@"
'''
"""A few tests make their topics with the tool of a Kafka distribution."""
_DECLARED = re.compile(r"^ {4}_TEST\((\w+),(.*?)(?=^ {0,4}\S)", re.MULTILINE | re.DOTALL)
_NOT_FOR_US = re.compile(r"TEST_F_(LOCAL|MANUAL|SOCKEM|KNOWN_ISSUE)\b|\.scenario")
_COLOUR = re.compile(r"\x1b\[\d*m")
_STARTED = re.compile(r"={5,} Running test (\S+) =")
_PASSED = re.compile(r"={5,} Test (\S+) PASSED =")
_SUMMARY = re.compile(r"^\| (\d\w+) +\| +(PASSED|FAILED|SKIPPED) \|[^|]*\|(.*)$", re.MULTILINE)
_REASON = re.compile(r'^### Test "(\w+)" failed at .* ###\n(.*)$', re.MULTILINE)
_FILTERED = ("", "Filtered due to negative test flags")
_NOTE_LENGTH_MAX = 120


class Librdkafka(Suite):
    name = "librdkafka"
    version = "1.10.1"  # of the package; librdkafka in it is 2.15.1
    settings: ClassVar[Mapping[str, object]] = {"auto.create.topics.enable": "true", "num.partitions": 4}
    run_timeout_s = 240
    whole_timeout_s = 5400

    def build(self, folder: Path) -> None:
        log = folder / "build.log"
        tool("g++", "librdkafka's suite")
        npm_pack(PACKAGE, self.version, folder, log)
        sources = folder / SOURCES
        make(["./configure"], sources, log=log)
        make([tool("make", "librdkafka's suite"), "-j2", "libs"], sources, log=log)
        make(["make", "-j2", "-C", "tests", "build"], sources, log=log)

    def runs(self, folder: Path) -> list[str]:
        """One run for each number: the runner chooses by it, and a few tests share theirs."""
        by_number: dict[str, str] = {}
        for name in broker_tests((folder / SOURCES / "tests" / "test.c").read_text()):
            by_number.setdefault(number_of(name), name)
        return list(by_number.values())

    def command(self, folder: Path, scratch: Path, run: str, address: str, *, is_ci: bool) -> Command:
        sources = folder / SOURCES
        config = scratch / "test.conf"
        config.write_text(
            f"bootstrap.servers={address}\ntest.timeout.multiplier={TIMEOUT_FACTOR}\ntest.topic.random=true\n"
        )
        tool_path = scratch / "bin" / "kafka-topics.sh"
        tool_path.parent.mkdir()
        tool_path.write_text(TOPICS_TOOL)
        tool_path.chmod(0o755)
        environment = {
            "TESTS": number_of(run),
            "KAFKA_PATH": str(scratch),
            "BROKERS": address,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "RDKAFKA_TEST_CONF": str(config),
            "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        }
        quick = [] if number_of(run) in IN_FULL else ["-Q"]
        words = [str(sources / "tests" / "test-runner"), *quick, "-E", "-L"]
        return Command(words, scratch, environment)

    def read(self, run: str, ended: Ended) -> list[Result]:
        return read_test_runner(run, ended)


def npm_pack(package: str, version: str, folder: Path, log: Path) -> None:
    """A package of the npm registry, unpacked as `package/`, with nothing installed or run."""
    npm = tool("npm", package)
    make([npm, "pack", f"{package}@{version}", "--pack-destination", str(folder)], folder, log=log)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    archive.unlink()


def number_of(name: str) -> str:
    return name.partition("_")[0]


def broker_tests(source: str) -> list[str]:
    """The tests that test.c declares for a broker of the default kind."""
    return [name for name, rest in _DECLARED.findall(source) if not _NOT_FOR_US.search(rest)]


def read_test_runner(run: str, ended: Ended) -> list[Result]:
    """What the summary says of each test; without one, tests that began and have not passed have failed."""
    output = _COLOUR.sub("", ended.output)
    told = {name: (Outcome[word], note.strip()) for name, word, note in _SUMMARY.findall(output)}
    results = [
        Result(name, outcome, note[:_NOTE_LENGTH_MAX])
        for name, (outcome, note) in told.items()
        if outcome is not Outcome.SKIPPED or note not in _FILTERED
    ]
    passed = set(_PASSED.findall(output))
    reasons = dict(_REASON.findall(output))
    late = "did not end in time" if ended.code is None else f"ended with code {ended.code} and no result"
    for name in dict.fromkeys(_STARTED.findall(output)):
        if name in passed and name not in told:
            results.append(Result(name, Outcome.PASSED))
        elif name not in told:
            results.append(Result(name, Outcome.FAILED, reasons.get(name, late)[:_NOTE_LENGTH_MAX]))
    return results or [Result(run, Outcome.FAILED, late)]
