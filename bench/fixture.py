"""The fixture for tests: how long the first test of a run waits for its cluster, in an installation as users have it.

The package is installed from its wheel, whose list of files is what pytest goes by when it marks modules for its
rewriting. Cold is a run with nothing cached by pytest, and with PYTHONDONTWRITEBYTECODE=1, as in many images; warm is a
run like the one before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Reading

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 120
COLD, WARM = "fixture of a test run, cold", "fixture of a test run, warm"
WHOLE = "pytest with one test that uses it, cold"
KIP_974 = (
    "https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-974%3A+Docker+Image+for+GraalVM+based+Native+Kafka+Broker"
)
NOTE = f"""\
How long the first test of a run waits for `moldau_cluster`, imports included, with the package installed from its
wheel. What is published of Kafka in a container: testcontainers' Java module said in 2019 that its test of using one
takes 9 s, 12 s before ([testcontainers-java 2078](https://github.com/testcontainers/testcontainers-java/pull/2078)); of
its Python module no figure was found. The broker alone takes 1.2 s on a JVM and 0.13 s as the experimental native image
([KIP-974]({KIP_974})), to which the container comes. *Start and memory* has Apache Kafka on this machine, without one.
"""
TEST = """\
import time


def test_start(request):
    started_s = time.perf_counter()
    request.getfixturevalue("moldau_cluster")
    print(f"fixture_s={time.perf_counter() - started_s}")
"""


class Installation:
    """The package from its wheel, before all else that this interpreter has, and a project with one test."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.site = folder / "site"
        self.project.mkdir(parents=True)
        (self.project / "test_start.py").write_text(TEST)
        _run("-m", "build", "--no-isolation", "--wheel", "-o", str(folder), str(ROOT))
        (wheel,) = folder.glob("*.whl")
        _run("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(self.site), str(wheel))

    def pytest(self, *arguments: str, writes_bytecode: bool = True) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPATH"] = str(self.site)
        if not writes_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return _run("-m", "pytest", "-q", "-s", *arguments, folder=self.project, environment=environment)


def starts(folder: Path, runs: int) -> Iterator[Reading]:
    installation = Installation(folder)
    for is_cold in (True, False):
        for number in range(
            runs + 1
        ):  # the first brings the programs into the page cache, and is not counted
            said = installation.pytest(writes_bytecode=not is_cold)
            if number:
                yield Reading(COLD if is_cold else WARM, _found(said, "fixture_s="), "s")
            if number and is_cold:
                yield Reading(WHOLE, _found(said, " in "), "s")


def _found(said: str, mark: str) -> float:
    """The number behind the last such mark."""
    return float(said.rpartition(mark)[2].split()[0].rstrip("s"))


def _run(*arguments: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout
