"""`make demo`, in a terminal and in a pipe: it shows results, and after Ctrl-C nothing of it runs any more."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE_S = 420.0
ROWS, COLUMNS = 60, 130
AT_ITS_TERMINAL = (
    f"import fcntl, os, sys; fcntl.ioctl(0, {termios.TIOCSCTTY}, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Its keys are then signals to the program."""
COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def descendants(pid: int) -> set[int]:
    """The numbers of all processes that this one has started, and those of theirs."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def command_line(pid: int) -> str | None:
    """None where it has ended."""
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        text = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return None
    return None if state == "Z" else text


class Watched:
    """The demo, what it prints, and every process that it was seen to have."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.pids: dict[int, str] = {}
        self.text = b""
        self._output = output

    def read_until(self, pattern: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, COLOURS.sub(b"", self.text)):
            assert time.monotonic() < deadline, self.text[-6000:].decode(errors="replace")
            if not self._read():
                raise AssertionError(f"it has ended: {self.text[-6000:].decode(errors='replace')}")
            self._count()

    def _read(self) -> bool:
        if select.select([self._output], [], [], 1.0)[0]:
            try:
                data = os.read(self._output, 1 << 16)
            except OSError:
                return False  # a terminal that nobody writes to any more
            self.text = (self.text + data)[-(1 << 18) :]
            return bool(data)
        return True

    def _count(self) -> None:
        for pid in descendants(self.process.pid):
            if (text := command_line(pid)) is not None:
                self.pids[pid] = text  # the last one: a shell becomes the program that it was to start

    def ended(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self._read():
            assert time.monotonic() < deadline
        return self.process.wait(DEADLINE_S)

    def left(self) -> dict[int, str]:
        """Of those that were seen, the ones that live. Spark's last workers end when they see the end of a pipe."""
        deadline = time.monotonic() + 10.0
        while True:
            found = {pid: text for pid, text in self.pids.items() if command_line(pid) == text}
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


@pytest.fixture
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    command = [sys.executable, "-m", "bench.demo", "--picture", str(tmp_path / "demo.svg")]
    if request.param == "terminal":
        output, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            [sys.executable, "-c", AT_ITS_TERMINAL, *command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
        )
        os.close(terminal)
    else:
        output, writing = os.pipe()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, start_new_session=True
        )
        os.close(writing)
    watched = Watched(process, output)
    yield watched
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
    os.close(output)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("started", ["terminal"], indirect=True)
def test_on_a_terminal_it_draws_results_until_ctrl_c_and_leaves_no_process(
    requires_spark: None, started: Watched, tmp_path: Path
) -> None:
    started.read_until(rb"ended +[1-9]")
    started.read_until(rb"/search +[1-9]")
    started.read_until(rb"MINUTE +VIEWS[\s\S]*\d\d:\d\d +[1-9]")
    for part in ("moldau.cli.supervised broker-3", "generate.py --rate", "pipeline run", "org.apache.spark"):
        assert any(part in text for text in started.pids.values()), part
    os.write(started._output, b"\x03")  # as the key does
    started.read_until(rb"stopped: no process is left")
    assert started.ended() == 0
    assert started.left() == {}
    picture = (tmp_path / "demo.svg").read_text()
    assert "/search" in picture and "http://www.w3.org/2000/svg" in picture and "font-face" not in picture


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("started", ["pipe"], indirect=True)
def test_in_a_pipe_it_prints_lines(requires_spark: None, started: Watched) -> None:
    started.read_until(rb"running, lag \d+, sessions [1-9].*top pages / [1-9]")
    started.process.send_signal(signal.SIGTERM)
    started.read_until(rb"stopped: no process is left")
    assert started.ended() == 0
    assert started.left() == {}
    assert b"\x1b[" not in started.text
