"""`moldau up --brokers N` as processes: ready line, restarts, signals, and what stops a start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.support import wait_until
from cluster.up import COMMAND, TIMEOUT_S, Up

Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def run(*arguments: str, **environment: str) -> Up:
        started.append(Up(tmp_path, *arguments, **environment))
        return started[-1]

    yield run
    for up in started:
        up.kill()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def refused(folder: Path, *arguments: str, code: int = 5) -> str:
    done = subprocess.run(
        [*COMMAND, "up", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=folder,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    return error


@contextmanager
def kept_free_before_one_in_use() -> Iterator[int]:
    """A port on which somebody listens, and the one before it: bound and not listened to, so that no other
    test is given it and the broker may have it (see FreePorts)."""
    for _ in range(100):
        with socket.socket() as kept, socket.socket() as taken:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("", 0))
            port = kept.getsockname()[1] + 1
            try:
                taken.bind(("", port))
                taken.listen()
            except (OSError, OverflowError):
                continue
            yield port
            return
    raise OSError("no two free ports in a row")


def test_each_broker_is_a_process_that_answers_on_its_own_port(start: Start) -> None:
    up = start("--brokers", "3")
    assert len(set(up.addresses)) == 3
    pids = {up.pid(broker) for broker in (1, 2, 3)}
    assert len(pids) == 3 and all(map(is_alive, pids)) and up.popen.pid not in pids
    for address in up.addresses:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S):
            pass
    everyone = {None, "broker-1", "broker-2", "broker-3"}
    wait_until(
        lambda: {entry.get("process") for entry in up.log()} == everyone, TIMEOUT_S, "a word of everyone"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_cleanly_and_temporary_data_is_gone(
    start: Start, tmp_path: Path, number: int
) -> None:
    up = start("--brokers", "2", "--data", ":temp:", TMPDIR=str(tmp_path))
    (data,) = tmp_path.glob("moldau-*")
    pids = [int((data / f"broker-{broker}" / "pid").read_text()) for broker in (1, 2)]
    assert up.end(number) == 0
    assert not any(map(is_alive, pids))
    assert list(tmp_path.glob("moldau-*")) == []
    assert up.popen.stdout is not None and up.popen.stdout.read() == "", "the ready line is all of stdout"
    stopped = [entry["process"] for entry in up.log() if entry["message"] == "stopped" and "process" in entry]
    assert sorted(stopped) == ["broker-1", "broker-2"]


def test_a_killed_broker_comes_back_on_its_port_and_says_so(start: Start) -> None:
    up = start("--brokers", "2")
    first = up.pid(2)
    os.kill(first, signal.SIGKILL)
    second = up.wait_for_another(2, first)
    assert is_alive(second) and up.said("broker-2 has ended: killed by SIGKILL; it is started again")
    wait_until(lambda: up.said("broker-2 is back"), TIMEOUT_S)
    host, _, port = up.addresses[1].partition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S):
        pass
    assert up.end() == 0 and not is_alive(second)


def test_a_broker_that_is_told_to_reload_goes_on(start: Start) -> None:
    up = start("--brokers", "2")
    pid = up.pid(1)
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: up.said("SIGHUP: the broker goes on as it is"), TIMEOUT_S, "the broker to note it")
    assert up.pid(1) == pid and is_alive(pid)
    assert up.end() == 0


def test_a_broker_that_is_stopped_alone_comes_back_too(start: Start) -> None:
    up = start("--brokers", "2")
    first = up.pid(1)
    os.kill(first, signal.SIGTERM)
    up.wait_for_another(1, first)
    assert up.said("broker-1 has ended: stopped by a signal; it is started again")


def test_a_broker_that_cannot_start_again_is_tried_after_pauses_that_are_told(start: Start) -> None:
    up = start("--brokers", "2")
    meta = up.data / "broker-2" / "meta.properties"
    good = meta.read_text()
    meta.write_text(good.replace("node.id=2", "node.id=7"))
    os.kill(up.pid(2), signal.SIGKILL)
    wait_until(lambda: up.said("broker-2 has ended 2 times soon after its start: "), TIMEOUT_S)
    (said,) = (entry for entry in up.log() if "ended 2 times" in entry["message"])
    assert "node.id=7" in said["message"] and said["message"].endswith("it is started again in 0.5 s")
    meta.write_text(good)
    wait_until(lambda: up.pid(2) != 0, TIMEOUT_S)
    assert up.end() == 0


def test_without_restarts_a_killed_broker_stays_dead_and_leaves_no_pid(start: Start) -> None:
    up = start("--brokers", "2", "--no-restart")
    os.kill(up.pid(2), signal.SIGKILL)
    wait_until(lambda: up.said("broker-2 has ended: killed by SIGKILL; it is not started again"), TIMEOUT_S)
    assert up.pid(2) == 0 and is_alive(up.pid(1)) and up.popen.poll() is None
    os.kill(up.pid(1), signal.SIGKILL)
    assert up.popen.wait(TIMEOUT_S) == 1
    assert "All brokers have ended." in up.errors.read_text()


def test_no_broker_outlives_the_supervisor(start: Start) -> None:
    up = start("--brokers", "2")
    pids = [up.pid(1), up.pid(2)]
    os.kill(pids[1], signal.SIGSTOP)  # one that could not see the end of a pipe
    up.end(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)), TIMEOUT_S, "the brokers to end")


def test_the_second_signal_ends_them_at_once(start: Start, tmp_path: Path) -> None:
    up = start("--brokers", "2", "--data", ":temp:", TMPDIR=str(tmp_path))
    (data,) = tmp_path.glob("moldau-*")
    pids = [int((data / f"broker-{broker}" / "pid").read_text()) for broker in (1, 2)]
    os.kill(pids[1], signal.SIGSTOP)  # it will not stop by being asked
    up.popen.send_signal(signal.SIGINT)
    wait_until(lambda: up.said("stopping; Ctrl-C once more"), TIMEOUT_S)
    begun = time.monotonic()
    assert up.end(signal.SIGINT) == 130
    assert time.monotonic() - begun < 10
    assert not any(map(is_alive, pids)) and list(tmp_path.glob("moldau-*")) == []


def test_a_port_in_use_is_said_in_one_sentence_that_names_the_broker(tmp_path: Path) -> None:
    with kept_free_before_one_in_use() as port:
        error = refused(tmp_path, "--brokers", "2", "--port", str(port - 1), "--data", ":temp:")
    assert "broker-2: The port is in use by another process" in error and str(port) in error


def test_brokers_stay_in_their_cluster_and_may_become_more_but_not_fewer(
    start: Start, tmp_path: Path
) -> None:
    start().end()
    grown = start("--brokers", "2")
    assert grown.said("broker 2 is new here")
    assert grown.end() == 0
    again = start()
    assert len(again.addresses) == 2
    assert "in use by another broker" in refused(tmp_path, "--port", "0")
    again.end()
    assert "would leave out broker 2" in refused(tmp_path, "--brokers", "1", "--port", "0")
    (tmp_path / "moldau-data" / "cluster.sqlite").unlink()
    assert "belongs to cluster.id=" in refused(tmp_path, "--port", "0")
