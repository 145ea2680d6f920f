"""The demo's processes: each in a process group of its own, its output in a file, stopped in turn.

Ctrl-C on a terminal reaches the demo alone, which then stops the parts from the last to the first. One that does not
end in time is killed, with all of its group; nothing that was started here is left running.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "website_activity"
BROKERS = 3
PARTITIONS = 3
STOP_S = 60.0
"""How long a part may take to stop: a pipeline lets its batches end."""
PEOPLE_PER_VIEW = 400
"""So many for each view a second come back seldom enough for sessions to end."""
LOOK_S = 0.1
TAIL_LINES = 12
TOPICS = ("page-views", "page-views-per-minute")


class Failed(Exception):
    """A part cannot start, or has ended by itself; the text has the end of what it wrote."""


class Part:
    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Started at once; what it writes is in `folder/name.log`, but for what brokers say on stdout."""
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "brokers" else log,
                stderr=log,
                process_group=0,
            )

    def first_line(self, stopping: Event) -> str:
        """What it says on stdout when it is ready; Failed where it ends instead, "" where all is to end."""
        assert self._process.stdout is not None
        while not stopping.is_set():
            if select.select([self._process.stdout], [], [], LOOK_S)[0]:
                line = self._process.stdout.readline()
                if not line:
                    self._process.wait()
                    raise Failed(self.why())
                return line.decode()
        return ""

    def wait(self, stopping: Event) -> None:
        """Until it has ended, which is to be well, or all is to end."""
        while not self.has_ended() and not stopping.is_set():
            try:
                self._process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass

    def has_ended(self) -> bool:
        """Whether it has, well; Failed where it has not ended well."""
        if self._process.poll():
            raise Failed(self.why())
        return self._process.returncode is not None

    def why(self) -> str:
        end = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        code = self._process.returncode
        return "\n".join([f"{self.name} ended with exit code {code}. The end of {self.log}:", *end])

    def stop(self, at_once: Event) -> None:
        """Ask it to end, and see to it that it has."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if self.name == "pipeline" else signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        while self._process.poll() is None and time.monotonic() < deadline and not at_once.is_set():
            try:
                self._process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """What is left of its group, at once."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Parts:
    """Those that run, in the order in which they were started."""

    def __init__(self, folder: Path, stopping: Event) -> None:
        self.folder = folder
        self.project = folder / EXAMPLE.name
        self.bootstrap_servers = ""
        self._stopping = stopping
        self._history: Part | None = None
        self._parts: list[Part] = []

    def start_brokers(self) -> None:
        """Three, with the topics of the example; ready when this returns, unless all is to end."""
        listeners = "listeners=PLAINTEXT://127.0.0.1:0"
        more = ["--brokers", str(BROKERS), "--data", "data", "--set", listeners, "--json"]
        ready = self._start("brokers", moldau("up", *more)).first_line(self._stopping)
        if not ready:
            return
        self.bootstrap_servers = json.loads(ready)["bootstrap_servers"]
        more = ["--partitions", str(PARTITIONS), "-b", self.bootstrap_servers]
        creating = self._start("topics", moldau("topic", "create", *TOPICS, *more))
        creating.wait(self._stopping)
        if creating.has_ended():
            self._forget(creating)

    def start_pipeline(self) -> None:
        left_out = shutil.ignore_patterns("storage", "__pycache__")
        shutil.copytree(EXAMPLE, self.project, ignore=left_out)
        self._start("pipeline", moldau("pipeline", "run", str(self.project)))

    def start_history(self) -> None:
        """An hour of page views, so that there is something to see from the first minute on."""
        self._history = self._start("history", self._generate("--begin", str(time.time() - 3600)))

    def look_after(self, rate: float) -> None:
        """After the history come page views as time goes by. Failed where a part has ended by itself."""
        if self._history is not None and self._history.has_ended():
            self._forget(self._history)
            self._history = None
            people = str(int(rate * PEOPLE_PER_VIEW) + 1)
            more = ("--rate", str(rate), "--seed", "2", "--visitors", people)
            self._start("generator", self._generate(*more))
        for part in self._parts:
            if part is not self._history and part.has_ended():
                raise Failed(part.why())

    def _generate(self, *options: str) -> list[str]:
        return [sys.executable, str(EXAMPLE / "generate.py"), *options]

    def _start(self, name: str, command: Sequence[str]) -> Part:
        part = Part(name, command, self.folder, {"MOLDAU_BOOTSTRAP": self.bootstrap_servers})
        self._parts.append(part)
        return part

    def _forget(self, part: Part) -> None:
        """One that has ended: its number may be another process's soon."""
        self._parts.remove(part)

    def stop(self, at_once: Event) -> None:
        """The last first: what a part needs goes after it."""
        for part in reversed(self._parts):
            part.stop(at_once)


def moldau(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from moldau.cli import main; main()", *arguments]
