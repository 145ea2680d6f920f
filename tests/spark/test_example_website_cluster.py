"""The website-activity pipeline on a cluster of Spark's, one master and two workers, against three brokers: a worker is
killed with -9 while page views come in, and the results are those of plain Python.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.runtime.real.java import Unavailable
from moldau.testing import Cluster
from needs import missing
from spark.standalone import Standalone, standalone_cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "website_activity"
DEADLINE_S = 420.0
BEGIN = 1_794_000_000
VIEWS = 3000
LOOPBACK = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")


@pytest.fixture
def spark_cluster(requires_spark: None, tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "spark"
    folder.mkdir()
    try:
        with standalone_cluster(folder) as cluster:
            yield cluster
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"page-views": 3, "page-views-per-minute": 1}) as cluster:
        yield cluster


class Project:
    """A copy of the example, and its commands."""

    def __init__(self, folder: Path, servers: str, master: str) -> None:
        self.folder = shutil.copytree(EXAMPLE, folder)
        self._environment = {**os.environ, "MOLDAU_BOOTSTRAP": servers}
        self._moldau = str(Path(sys.executable).with_name("moldau"))
        self._settings = [word for setting in LOOPBACK for word in ("--set", setting)] + ["--master", master]
        self.log = folder / "run.log"

    def python(self, *command: str) -> str:
        return self._done([sys.executable, *command])

    def run_once(self) -> None:
        self._done([self._moldau, "pipeline", "run", "--once", *self._settings])

    def stop(self) -> None:
        self._done([self._moldau, "pipeline", "stop", "--timeout", str(DEADLINE_S)])

    def _done(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.said
        return done.stdout

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [self._moldau, "pipeline", "run", *self._settings]
        with self.log.open("w") as log:
            run = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
            self.stop()
            assert run.wait(DEADLINE_S) == 0, self.said
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait(30)

    def wait_until(self, is_so: Callable[[dict[str, Any]], bool]) -> None:
        """By the note that the run keeps for other terminals: its flows by their names."""
        note, deadline_s = self.folder / "storage/_moldau/run.json", time.monotonic() + DEADLINE_S
        while True:
            if note.exists():
                flows = {flow["flow"]: flow for flow in json.loads(note.read_text())["flows"]}
                if is_so(flows):
                    return
            assert time.monotonic() < deadline_s, self.said
            time.sleep(0.2)

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def views_read(flows: dict[str, Any]) -> int:
    return int(flows["page_views"]["rows"])


@pytest.mark.timeout(1800)
def test_its_results_are_right_although_a_worker_is_killed(
    spark_cluster: Standalone, brokers: Cluster, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project", brokers.bootstrap_servers, spark_cluster.url)
    generate = ("generate.py", "--begin", str(BEGIN), "--views", str(VIEWS))
    with project.running():
        project.python(*generate)
        project.wait_until(lambda flows: views_read(flows) > 0)
        project.python(*generate, "--skip", str(VIEWS))
        spark_cluster.kill_worker(0)
        project.python(*generate, "--skip", str(2 * VIEWS))
        project.wait_until(lambda flows: views_read(flows) >= 3 * VIEWS and flows["page_views"]["lag"] == 0)
    project.run_once()  # on the worker that is left
    checked = project.python("check.py")
    assert checked.count("as expected") == checked.count("\n") == 6, checked
