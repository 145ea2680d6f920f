"""A command's end is its own or its time-out's; nothing of it is left in either case."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from foreign.processes import FETCH_TRIES, CommandFailed, Unavailable, fetch, make, run, tool
from foreign.suite import Command

DEATH_TIMEOUT_S = 30


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.parametrize(("then", "timeout_s", "code"), [("exit 0", 60.0, 0), ("wait", 2.0, None)])
def test_no_child_outlives_a_command(tmp_path: Path, then: str, timeout_s: float, code: int | None) -> None:
    command = Command(["sh", "-c", f"sleep 600 & echo $!; {then}"], tmp_path)
    ended = run(command, tmp_path / "log.txt", timeout_s)
    assert ended.code == code
    deadline = time.monotonic() + DEATH_TIMEOUT_S
    while is_running(int(ended.output)):  # it was killed, but dies when the system gets to it
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_gets_its_environment_and_folder_and_no_input(tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ['COLOUR'], os.getcwd(), repr(sys.stdin.read()))"
    command = Command([sys.executable, "-c", script], tmp_path, {"COLOUR": "blue"})
    assert run(command, tmp_path / "log.txt", 60).output.split() == ["blue", str(tmp_path.resolve()), "''"]


def test_a_suite_does_not_learn_that_it_runs_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    command = Command(["sh", "-c", "echo ${CI-unset}"], tmp_path)
    assert run(command, tmp_path / "log.txt", 60).output == "unset\n"


def test_a_build_step_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"ended with code 3:\nno compiler"):
        make(["sh", "-c", "echo no compiler; exit 3"], tmp_path, log=tmp_path / "log.txt")


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(Unavailable, match="the suite needs `no-such-tool`"):
        tool("no-such-tool", "the suite")


def test_a_fetch_is_tried_again(tmp_path: Path) -> None:
    script = 'echo >> tries; test "$(wc -l < tries)" -ge "$0" && echo fetched'
    log = tmp_path / "log.txt"
    assert fetch(["sh", "-c", script, str(FETCH_TRIES)], tmp_path, log=log, pause_s=0) == "fetched\n"
    (tmp_path / "tries").unlink()
    with pytest.raises(CommandFailed):
        fetch(["sh", "-c", script, str(FETCH_TRIES + 1)], tmp_path, log=log, pause_s=0)
