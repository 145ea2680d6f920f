"""A standalone cluster of Spark's, from pip's pyspark: one master and two workers with a core each.

The workers listen on two loopback addresses, since Spark starts a speculative copy on another host only. Linux has all
of 127.0.0.0/8; where the second address is none, `Unavailable` says so.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moldau.runtime.real.free_ports import FreePorts
from moldau.runtime.real.java import Unavailable

MASTER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
READY_S = 120.0


@dataclass(frozen=True)
class Standalone:
    url: str
    """Of the master."""
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, number: int) -> None:
        """With -9, and its executors with it, as when its machine dies."""
        end(self.workers[number])


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Standalone]:
    require_addresses()
    ports = FreePorts(MASTER_HOST)
    port, web_port = ports.take(), ports.take()
    ports.let_servers_have_them()
    url = f"spark://{MASTER_HOST}:{port}"
    begun: list[subprocess.Popen[bytes]] = []
    try:
        place = ["--host", MASTER_HOST, "--port", str(port), "--webui-port", str(web_port)]
        begun.append(begin(folder, "master", ["org.apache.spark.deploy.master.Master", *place]))
        wait_for(folder / "master.log", "I have been elected leader", 1)
        for number, host in enumerate(WORKER_HOSTS):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            place = ["--host", host, "--port", "0", "--webui-port", "0"]
            command = ["org.apache.spark.deploy.worker.Worker", *place, *work, url]
            begun.append(begin(folder, f"worker-{number}", command))
        wait_for(folder / "master.log", "Registering worker", len(WORKER_HOSTS))
        yield Standalone(url, begun[1:])
    finally:
        for process in begun:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """With all of its group; what has ended stays so."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def require_addresses() -> None:
    for host in WORKER_HOSTS:
        with socket.socket() as tried:
            try:
                tried.bind((host, 0))
            except OSError:
                raise Unavailable(f"This machine has no address {host} for a second host.") from None


def begin(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("SPARK_LOCAL_IP", None)  # each has its own
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(home / "bin/spark-class"), *command],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_for(log: Path, line: str, times: int) -> None:
    deadline_s = time.monotonic() + READY_S
    while log.read_text(errors="replace").count(line) < times:
        assert time.monotonic() < deadline_s, (
            f"no {line!r} in {log}: {log.read_text(errors='replace')[-2000:]}"
        )
        time.sleep(0.1)
