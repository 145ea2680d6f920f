"""A client beside the attack: how long it waits for a small answer, and how much memory the broker takes meanwhile.

    python -m attack.pinger HOST:PORT PID

It is a process of its own, so that nothing that the attacker computes delays it. It asks ApiVersions, all versions in
turn, every millisecond at most, and looks at the memory of the broker and its children every 50 ms. It is told `begin`
and `end SECONDS` on its standard input; to `end` it answers with one line of JSON, at the latest after these seconds: a
question that is not answered by then counts as long as it has waited. A connection that is closed is opened anew, and
the question is asked again; the wait goes on meanwhile.

The percentile is of those who come at any moment, not of the questions asked: one that waits for five seconds stands
for the 5,000 that would have come in that time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bench.server import descendants

from .requests import frame

INTERVAL_S = 0.001
MEMORY_INTERVAL_S = 0.05
CONNECT_TIMEOUT_S = 0.2
RESET_PEAK = "5"
"""What proc(5) wants in clear_refs, to forget VmHWM."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Between `begin` and `end`."""

    pings: int
    worst_ms: float
    p99_ms: float
    starved_ms: float
    """Of the worst wait, how long the broker's loop wanted to run and had no core: other processes are to blame."""
    is_waiting: bool
    """The last question is not answered: the worst wait is longer than it says."""
    closed: int
    """How often the pinger's own connection was closed, or could not be opened."""
    peak_bytes: int
    now_bytes: int


def percentile(waits_s: Sequence[float], share: float, interval_s: float = INTERVAL_S) -> float:
    """The wait that this share of those who come every `interval_s` does not exceed, in seconds."""

    def longer_than(wait_s: float) -> float:
        return sum(max(1.0, (each - wait_s) / interval_s) for each in waits_s if each > wait_s)

    if not waits_s:
        return 0.0
    allowed = longer_than(-interval_s) * (1 - share)
    low, high = 0.0, max(waits_s)
    while high - low > 0.00001:
        middle = (low + high) / 2
        low, high = (middle, high) if longer_than(middle) > allowed else (low, middle)
    return high


def memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes of one process, by a field of /proc/PID/status; 0 where it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def starved_s(pid: int) -> float:
    """How long the main thread of a process has waited for a core since its start; 0 where that is not known."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def memory_of_all(pid: int) -> int:
    """Bytes of a process and its children."""
    return sum(memory(each) for each in descendants(pid))


class _Pinging:
    def __init__(self, address: str, pid: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._pid = pid
        self._frames = [frame("ApiVersions", version, {"client_software_name": "p"}) for version in range(5)]
        self._socket: socket.socket | None = None
        self._received = b""
        self._asked_s: float | None = None
        self._next_s = time.monotonic()
        self._memory_s = self._next_s
        self._number = 0
        self._end_s: float | None = None
        self._commands = b""
        self._peak = 0
        self._begin()

    def run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        now = time.monotonic()
        if now >= self._memory_s:
            self._peak = max(self._peak, memory_of_all(self._pid))
            self._memory_s = now + MEMORY_INTERVAL_S
        if self._asked_s is None and now >= self._next_s:
            self._starved_before_s = starved_s(self._pid)
            self._asked_s = now = time.monotonic()
            self._ask()
        if self._end_s is not None and (self._asked_s is None or now >= self._end_s):
            self._end_s = None
            self._report()
        waiting_for: list[socket.socket | int] = [0]
        until = self._memory_s if self._asked_s is not None else min(self._next_s, self._memory_s)
        if self._socket is not None and self._asked_s is not None:
            waiting_for.append(self._socket)
        readable, _, _ = select.select(waiting_for, [], [], max(0.0, until - time.monotonic()))
        if self._socket in readable:
            self._receive()
        elif self._socket is None:
            self._ask()
        return self._obey() if 0 in readable else True

    def _obey(self) -> bool:
        """Take commands; False at the end of them."""
        data = os.read(0, 4096)
        self._commands += data
        *lines, self._commands = self._commands.split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"begin":
                self._begin()
            elif word == b"end":
                self._end_s = time.monotonic() + float(rest)
        return bool(data)

    def _begin(self) -> None:
        self._waits: list[float] = []
        self._worst_s = self._starved_of_worst_s = 0.0
        self._starved_before_s = starved_s(self._pid)
        self._closed = 0
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._pid}/clear_refs").write_text(RESET_PEAK)
        self._hwm_before = memory(self._pid, "VmHWM")
        self._peak = memory_of_all(self._pid)
        self._asked_s = None if self._asked_s is None else time.monotonic()

    def _report(self) -> None:
        waits = list(self._waits)
        if self._asked_s is not None:
            waits.append(time.monotonic() - self._asked_s)
            self._note(waits[-1])
        hwm = memory(self._pid, "VmHWM")
        if hwm > self._hwm_before:  # else nothing new: the mark may be of before, where it cannot be reset
            self._peak = max(self._peak, hwm)
        seen = Seen(
            pings=len(waits),
            worst_ms=1000 * max(waits, default=0),
            p99_ms=1000 * percentile(waits, 0.99),
            starved_ms=1000 * min(self._starved_of_worst_s, self._worst_s),
            is_waiting=self._asked_s is not None,
            closed=self._closed,
            peak_bytes=self._peak,
            now_bytes=memory_of_all(self._pid),
        )
        print(json.dumps(asdict(seen)), flush=True)

    def _note(self, wait_s: float) -> None:
        if wait_s > self._worst_s:
            self._worst_s = wait_s
            self._starved_of_worst_s = max(0.0, starved_s(self._pid) - self._starved_before_s)

    # The connection

    def _ask(self) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._received = b""
            self._number += 1
            self._socket.sendall(self._frames[self._number % len(self._frames)])
        except OSError:
            self._hang_up()

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        self._received += data
        if len(self._received) >= 4 + int.from_bytes(self._received[:4], "big"):
            now = time.monotonic()
            assert self._asked_s is not None
            self._waits.append(now - self._asked_s)
            self._note(self._waits[-1])
            self._next_s = max(self._asked_s + INTERVAL_S, now)
            self._asked_s = None
            self._received = b""

    def _hang_up(self) -> None:
        self._closed += 1
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        time.sleep(INTERVAL_S)


class Pinger:
    """The process, from outside."""

    def __init__(self, address: str, pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attack.pinger", address, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def begin(self) -> None:
        self._tell("begin")

    def end(self, timeout_s: float) -> Seen:
        self._tell(f"end {timeout_s:.3f}")
        assert self._process.stdout is not None
        return Seen(**json.loads(self._process.stdout.readline()))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if __name__ == "__main__":
    _Pinging(sys.argv[1], int(sys.argv[2])).run()
