"""A broker as a process of its own: started, measured and ended by its pid.

`Server` guarantees that `start` returns when clients can work (or raises `StartFailed` with the end of the
broker's output), and that nothing it started is left running after `stop`, `kill`, the `with` block or the
end of this process. It leaves out restarts on a crash and more than one broker. `MoldauServer` is `moldau
up`; Apache Kafka's counterpart is `apache_kafka.KafkaServer`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self

from moldau.runtime.real.free_ports import free_port

HOST = "127.0.0.1"
POLL_INTERVAL_S = 0.005
OUTPUT_TAIL_BYTES = 2_000
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

_running: set[Server] = set()


class StartFailed(Exception):
    """The process ended, or did not serve clients in time; the text has the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a broker has used since its start, with its child processes."""

    cpu_s: float
    rss_bytes: int


class Target(Protocol):
    """What is measured: one broker, or a cluster of them."""

    @property
    def bootstrap_servers(self) -> str: ...
    def usage(self) -> Usage: ...


def count_brokers(port: int, timeout_s: float = 2.0) -> int:
    """How many live brokers the broker on this port names in a Metadata v1 answer; 0 where nobody answers."""
    body = struct.pack(">hhih2si", 3, 1, 1, 2, b"up", 0)
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return 0
    return int(struct.unpack_from(">i", answer, 8)[0]) if len(answer) == 12 else 0


class Server(ABC):
    """One broker on a port of this machine, with a folder for its data and what it prints."""

    name: ClassVar[str]
    clean_exit_code: ClassVar[int] = 0

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, *, port: int | None = None
    ) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.port = port or free_port()
        self.open_files_max: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    def is_ready(self) -> bool:
        return count_brokers(self.port) > 0

    def launch(self) -> None:
        """Start the process and return at once."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} is running already")
        command = list(self.command())
        if self.open_files_max is not None:
            command = ["sh", "-c", f'ulimit -n {self.open_files_max}; exec "$@"', "sh", *command]
        with open(self.folder / "stdout.txt", "wb") as out, open(self.folder / "stderr.txt", "wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
            )
        _running.add(self)

    def environment(self) -> Mapping[str, str] | None:
        """The process's variables; None: those of this process."""
        return None

    def wait_ready(self, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if self.ended():
                raise StartFailed(f"{self.name} ended while starting:\n{self.output()}")
            if time.monotonic() > deadline:
                self.kill()
                raise StartFailed(
                    f"{self.name} did not serve clients within {timeout_s:g} s:\n{self.output()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def start(self, timeout_s: float = 60) -> Self:
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self, timeout_s: float) -> int:
        """The exit code of a process that ends by itself; `subprocess.TimeoutExpired` where it does not."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        code = self._process.wait(timeout_s)
        self._forget()
        return code

    def stop(self, timeout_s: float = 60) -> bool:
        """SIGTERM; a process that does not end in time is killed. Returns whether it ended cleanly."""
        process = self._process
        if process is None:
            return True
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()
        return process.returncode == self.clean_exit_code

    def kill(self) -> None:
        """kill -9: the process gets no chance to write anything more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        self._process = None
        _running.discard(self)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def output(self) -> str:
        """The end of what the process printed."""
        parts = []
        for stream in ("stdout.txt", "stderr.txt"):
            with contextlib.suppress(OSError):
                parts.append(
                    (self.folder / stream).read_bytes()[-OUTPUT_TAIL_BYTES:].decode(errors="replace")
                )
        return "".join(parts)

    def usage(self) -> Usage:
        return usage_of(self.pid)

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class MoldauServer(Server):
    """`moldau up` with one broker, from the environment of this interpreter."""

    name = "Moldau"

    def command(self) -> Sequence[str]:
        script = Path(sys.executable).with_name("moldau")
        moldau = str(script) if script.exists() else (shutil.which("moldau") or "moldau")
        options = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return [moldau, "up", "--port", str(self.port), "--data", str(self.data), *options]

    def environment(self) -> Mapping[str, str]:
        """An installed package is compiled; a source tree is so from the second start on, where Python may keep it."""
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def is_ready(self) -> bool:
        return b"ready: bootstrap.servers=" in (self.folder / "stdout.txt").read_bytes()


def usage_of(pid: int) -> Usage:
    """CPU and memory of a process and its descendants (Linux only).

    CPU comes from the kernel's clock of each process, to the nanosecond and with the threads that ended; children
    that ended are in their parent's counters, to a hundredth of a second.
    """
    cpu_s, rss_bytes = 0.0, 0
    for number in descendants(pid):
        process = Path("/proc") / str(number)
        try:
            cpu_s += cpu_of(number)
            ended_children = (process / "stat").read_text().rpartition(")")[2].split()[13:15]
            status = (process / "status").read_text()
        except OSError:  # it ended meanwhile
            continue
        cpu_s += sum(int(ticks) for ticks in ended_children) / CLOCK_TICKS_PER_S
        rss_bytes += (
            sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024
        )
    return Usage(cpu_s, rss_bytes)


def descendants(pid: int) -> Iterator[int]:
    """A process that runs, its children and theirs."""
    waiting = [pid]
    while waiting:
        number = waiting.pop()
        yield number
        waiting += children_of(number)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ended meanwhile, or one of its threads did
        for task in (Path("/proc") / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_of(pid: int) -> float:
    """Seconds of a process that runs, by its CPU clock, whose id clock_getcpuclockid(3) makes; else OSError."""
    return time.clock_gettime((~pid << 3) | 2)


@atexit.register
def _end_what_is_left() -> None:
    for server in tuple(_running):
        server.kill()
