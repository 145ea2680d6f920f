"""kafka-python's `test/integration`, from its source distribution, run by this environment's own pytest.

The client under test is the one in the source distribution. Two files of its `test` package are not in it, and are put
in their place: the empty `__init__.py`, without which Python takes its own `test` package, and `service.py`, whose part
here is only to stand for a broker that is running already.
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .brokers import ADDRESS, WITH_ACLS
from .processes import fetch, make
from .suite import Command, Ended, Outcome, Result, Suite, alone

PACKAGE = "kafka-python"
KAFKA_VERSION = "4.3.1"
"""What the tests take the broker for: they leave out what a broker of this version cannot do."""
TESTS = Path("test", "integration")
SERVICE = '''"""Stands in for a module that the source distribution leaves out: a broker that runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = open


class SpawnedService:
    def __init__(self, *_):
        raise RuntimeError("only a broker that runs already is tested")
'''
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "no:moldau",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--no-header",
]
BY_CHANCE = frozenset(
    {
        # Groups whose members poll for 100 or 200 ms, in which the client can forget that it has joined.
        "test_admin_integration.py::test_describe_group_exists",
        "test_admin_integration.py::test_delete_groups",
        "test_admin_integration.py::test_delete_groups_with_errors",
        "test_consumer_integration.py::test_group",
        "test_consumer_integration.py::test_heartbeat_thread",
        # It waits no longer than a second.
        "test_producer_integration.py::test_idempotent_producer",
    }
)
"""What may fail on a busy machine, on any broker."""
_COLLECTED = re.compile(r"^test/integration/(\S+::.+)$", re.MULTILINE)
_ENDED = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED)\b(?: \[\d+\])? ?(.*)$", re.MULTILINE)
_OUTCOMES = {
    "PASSED": Outcome.PASSED,
    "FAILED": Outcome.FAILED,
    "ERROR": Outcome.FAILED,
    "SKIPPED": Outcome.SKIPPED,
}
_NOTE_LENGTH_MAX = 160


class KafkaPython(Suite):
    name = "kafka-python"
    version = "3.0.12"
    # The tests take for granted: broker 0, sessions of three seconds, and an address that the file sets.
    settings: ClassVar[Mapping[str, object]] = {
        "node.id": 0,
        "advertised.listeners": f"PLAINTEXT://{ADDRESS}",
        "auto.create.topics.enable": "true",
        "num.partitions": 4,
        "group.min.session.timeout.ms": 1000,
        # With 0 the client now and then forgets that it has joined (docs/clients.md).
        "group.initial.rebalance.delay.ms": 1000,
        **WITH_ACLS,
    }
    run_timeout_s = 120
    whole_timeout_s = 1800
    # It wants the records of all partitions from one poll, which returns when the first broker has answered.
    for_one_broker = frozenset({"test_admin_integration.py::test_delete_records"})
    not_in_ci = BY_CHANCE
    # A consumer that subscribes while its first metadata is on the way may never ask for its topics (docs/clients.md):
    # on busy cores that is one test in a hundred.
    is_in_ci = False

    def build(self, folder: Path) -> None:
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(folder),
        ]
        fetch([*words, f"{PACKAGE}=={self.version}"], folder, log=folder / "build.log")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")
        archive.unlink()
        tests = self._sources(folder) / "test"
        (tests / "__init__.py").touch()
        (tests / "service.py").write_text(SERVICE)

    def _sources(self, folder: Path) -> Path:
        return folder / f"kafka_python-{self.version}"

    def _environment(self, folder: Path, address: str) -> dict[str, str]:
        return {
            "PYTHONPATH": str(self._sources(folder)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "250",  # else reasons are cut
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_URI": f"kafka://{address.partition(',')[0]}",
            "KAFKA_ROOT": str(folder),  # only looked for, where the broker runs already
        }

    def runs(self, folder: Path) -> list[str]:
        log = folder / "collect.log"
        words = [*PYTEST, "--collect-only", "-q", str(TESTS)]
        environment = self._environment(folder, "127.0.0.1:9092")
        return collected(make(words, self._sources(folder), log=log, environment=environment))

    def command(self, folder: Path, scratch: Path, run: str, address: str, *, is_ci: bool) -> Command:
        words = [*PYTEST, "-q", "-rA", "--show-capture=no", f"--basetemp={scratch}", str(TESTS / run)]
        return Command(words, self._sources(folder), self._environment(folder, address))

    def read(self, run: str, ended: Ended) -> list[Result]:
        return read_pytest(run, ended)


def collected(output: str) -> list[str]:
    """The tests of `--collect-only -q`, each as `file::name`."""
    return _COLLECTED.findall(output)


def read_pytest(run: str, ended: Ended) -> list[Result]:
    """The result of one test in the short summary of `-rA`; an error while it was set up or ended is a failure."""
    told = _ENDED.findall(ended.output)
    failed = [line for line in told if _OUTCOMES[line[0]] is Outcome.FAILED]
    if not told:
        return alone(run, ended, None)
    word, note = (failed or told)[0]
    note = note.partition(" - ")[2] if word != "SKIPPED" else note
    return alone(run, ended, _OUTCOMES[word], note[:_NOTE_LENGTH_MAX])
