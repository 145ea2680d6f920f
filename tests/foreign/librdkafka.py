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

from .brokers import WITH_ACLS
from .processes import fetch, make, tool
from .suite import Command, Ended, Outcome, Result, Suite

PACKAGE = "@confluentinc/kafka-javascript"
SOURCES = Path("package", "deps", "librdkafka")
KAFKA_VERSION = "4.3.1"
"""What the tests take the broker for: they leave out what a broker of this version cannot do."""
QUICK_BUILD = ("--disable-optimization", "--disable-debug-symbols")
"""Compiles in a fraction of the time; it is the broker that is tested."""
TIMEOUT_FACTOR = 2
IN_FULL = frozenset(
    {
        *("0018", "0019", "0022", "0026", "0045", "0050", "0061", "0077", "0082", "0089"),
        *("0102", "0122", "0127", "0132", "0137"),
    }
)
"""The numbers of tests of which `-Q` leaves out nearly all."""
TOOLS = {"kafka-topics.sh": "topics", "kafka-acls.sh": "org.apache.kafka.tools.AclCommand"}
"""Tools of a Kafka distribution that a few tests call, and the names that this project's helper has for them."""
SLOW = frozenset(
    {
        *("0015_offsets_seek", "0018_cgrp_term", "0019_list_groups", "0020_destroy_hang"),
        *("0026_consume_pause", "0030_offset_commit", "0033_regex_subscribe"),
        *("0045_subscribe_update", "0050_subscribe_adds", "0051_assign_adds", "0052_msg_timestamps"),
        *("0061_consumer_lag", "0069_consumer_add_parts", "0077_compaction", "0081_admin"),
        *("0083_cb_event", "0084_destroy_flags", "0089_max_poll_interval"),
        *("0091_max_poll_interval_timeout", "0093_holb_consumer", "0102_static_group_rebalance"),
        *("0114_sticky_partitioning", "0118_commit_rebalance"),
        *("0122_buffer_cleaning_after_rebalance", "0123_connections_max_idle"),
        *("0125_immediate_flush", "0129_fetch_aborted_msgs", "0132_strategy_ordering"),
        *("0137_barrier_batch_consume",),
    }
)
"""Runs of eight seconds and more, eighteen minutes together; the other 48, one of them unsure, take two."""
UNSURE = frozenset({"0055_producer_latency"})
"""It measures milliseconds, which librdkafka does not trust in CI either."""
_DECLARED = re.compile(r"^ {4}_TEST\((\w+),(.*?)(?=^ {0,4}\S)", re.MULTILINE | re.DOTALL)
_NOT_FOR_US = re.compile(r'TEST_F_(LOCAL|MANUAL|SOCKEM|KNOWN_ISSUE)\b|\.scenario = "(?!default)')
_COLOUR = re.compile(r"\x1b\[\d*m")
_STARTED = re.compile(r"={5,} Running test (\S+) =")
_PASSED = re.compile(r"={5,} Test (\S+) PASSED =")
_SUMMARY = re.compile(r"^\| (\d\w+) +\| +(PASSED|FAILED|SKIPPED) \|[^|]*\|(.*)$", re.MULTILINE)
_REASON = re.compile(r'^### Test "(\w+)\b.*" failed at .* ###\n(.*)$', re.MULTILINE)
_FILTERED = ("", "Filtered due to negative test flags")
_NOTE_LENGTH_MAX = 120


class Librdkafka(Suite):
    name = "librdkafka"
    version = "1.10.1"  # of the package; librdkafka in it is 2.15.1
    settings: ClassVar[Mapping[str, object]] = {
        "auto.create.topics.enable": "true",
        "num.partitions": 4,
        # Kafka's default: 0089 fails by chance where the second member comes into a group that has begun.
        "group.initial.rebalance.delay.ms": 3000,
        **WITH_ACLS,
    }
    run_timeout_s = 240
    whole_timeout_s = 5400
    not_in_ci = SLOW | UNSURE

    def build(self, folder: Path) -> None:
        log = folder / "build.log"
        tool("g++", "librdkafka's suite")
        npm_pack(PACKAGE, self.version, folder, log)
        sources = folder / SOURCES
        make(["./configure", *QUICK_BUILD], sources, log=log)
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
        put_tools(scratch / "bin")
        environment = {
            "TESTS": number_of(run),
            "KAFKA_PATH": str(scratch),
            "BROKERS": address,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "RDKAFKA_TEST_CONF": str(config),
            "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        }
        quick = [] if number_of(run) in IN_FULL else ["-Q"]
        words = [str(sources / "tests" / "test-runner"), *quick, "-E", "-L", "-p1"]
        return Command(words, scratch, environment)

    def read(self, run: str, ended: Ended) -> list[Result]:
        return read_test_runner(run, ended)


def npm_pack(package: str, version: str, folder: Path, log: Path) -> None:
    """A package of the npm registry, unpacked as `package/`, with nothing installed or run."""
    npm = tool("npm", package)
    fetch([npm, "pack", f"{package}@{version}", "--pack-destination", str(folder)], folder, log=log)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    archive.unlink()


def put_tools(folder: Path) -> None:
    """Kafka's tools as the shell scripts of its distribution."""
    folder.mkdir()
    for name, known_as in TOOLS.items():
        script = folder / name
        run = f'"{sys.executable}" -m bench.apache_kafka run {known_as} "$@"'
        script.write_text(f"#!/bin/sh\nexec {run}\n")
        script.chmod(0o755)


def number_of(name: str) -> str:
    return name.partition("_")[0]


def broker_tests(source: str) -> list[str]:
    """The tests that test.c declares for a broker of the default kind; some mocks are not marked as local.

    Those of share groups are left out: empty when quick, in full they take half an hour.
    """
    return [
        name
        for name, rest in _DECLARED.findall(source)
        if not _NOT_FOR_US.search(rest) and not name.endswith("_mock") and "_share_consumer_" not in name
    ]


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
