"""The broker, the Spark session with Spark's own connector in it, and the CPU of each of their processes.

The driver is this process and the Python processes that plan for it; the JVM runs the driver's side and the tasks, as
Spark does with `local[N]`; the workers are the Python processes of the tasks. The CPU of a process that ended is lost:
Spark keeps workers for a minute, longer than most of the measured pieces.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bench.server import MoldauServer, Server, children_of, cpu_of, descendants
from bench.spark.sides import register_plain
from bench.spark_connector import connector_jars
from moldau.spark.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

BROKER_SETTINGS: Final = {"log.segment.delete.delay.ms": 100}
TASK_WORKER: Final = b"pyspark.worker"
"""The module that Spark's daemon runs for tasks; those of the driver's planners have other names."""
END_TIMEOUT_S: Final = 60
Look = dict[int, tuple[str, float]]
"""Processes by their ids: what they are for, a field of `Cpu`, and the CPU that they have used, in seconds."""


class Cpu(NamedTuple):
    """Seconds, of each kind of process."""

    jvm: float
    workers: float
    driver: float
    broker: float

    @property
    def total(self) -> float:
        return sum(self)

    def over(self, count: float) -> Cpu:
        return Cpu(*(seconds / count for seconds in self))


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece of work took."""

    seconds: float
    cpu: Cpu


@dataclass(frozen=True, slots=True)
class World:
    server: Server
    spark: SparkSession
    jvm_pid: int
    folder: Path

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap_servers

    def look(self) -> Look:
        found = look_at_jvm(self.jvm_pid)
        found[os.getpid()] = "driver", time.process_time()
        for pid in descendants(self.server.pid):
            found |= _looked_at(pid, "broker")
        return found

    def taken(self, work: Callable[[], T]) -> tuple[T, Taken]:
        before, began_s = self.look(), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began_s
        return result, Taken(seconds, between(before, self.look()))


def between(before: Look, after: Look) -> Cpu:
    """What the processes have used that run at the second look; of one that ended nothing is known."""
    taken = dict.fromkeys(Cpu._fields, 0.0)
    for pid, (role, cpu_s) in after.items():
        taken[role] += cpu_s - before.get(pid, (role, 0.0))[1]
    return Cpu(**taken)


def look_at_jvm(pid: int) -> Look:
    """The JVM, the Python workers of its tasks, and the planners of the driver."""
    found: Look = {pid: ("jvm", cpu_of(pid))}
    for child in children_of(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            command = (Path("/proc") / str(child) / "cmdline").read_bytes().split(b"\0")
            for each in descendants(child):
                found |= _looked_at(each, "workers" if TASK_WORKER in command else "driver")
    return found


def _looked_at(pid: int, role: str) -> Look:
    try:
        return {pid: (role, cpu_of(pid))}
    except OSError:  # it ended meanwhile
        return {}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[World]:
    """A broker and a session; all of it is ended after the block."""
    with MoldauServer(folder / "broker", BROKER_SETTINGS) as server:
        spark = new_session("moldau-bench", f"local[{os.cpu_count()},4]", settings(folder))
        try:
            register_plain(spark)
            jvm: Any = spark.sparkContext._jvm
            yield World(server, spark, int(jvm.java.lang.ProcessHandle.current().pid()), folder)
        finally:
            spark.stop()
            end_jvm()


def settings(folder: Path) -> dict[str, str]:
    return {
        "spark.jars": connector_jars(),
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }


def end_jvm() -> None:
    """It would outlive its session until this process ends, with its files open."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)
        SparkContext._gateway = SparkContext._jvm = None
