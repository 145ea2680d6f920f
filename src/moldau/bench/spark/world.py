"""The broker, the Spark session with Spark's own connector in it, and the CPU of each of their processes.

The driver is this process and the Python processes that plan for it; the JVM runs the driver's side and the tasks, as
Spark does with `local[N]`; the workers are the Python processes of the tasks. The CPU of a worker that ended is lost
(its parent ignores it): Spark keeps them for a minute, longer than any of the measured pieces.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from moldau.bench.server import CLOCK_TICKS_PER_S, MoldauServer, Server, usage_of
from moldau.bench.spark.sides import register_plain
from moldau.bench.spark_connector import connector_jars
from moldau.spark.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

BROKER_SETTINGS: Final = {"log.segment.delete.delay.ms": 100}
TASK_WORKER: Final = b"pyspark.worker"
"""The module that Spark's daemon runs for tasks; those of the driver's planners have other names."""
END_TIMEOUT_S: Final = 60


class Cpu(NamedTuple):
    """Seconds, of each kind of process."""

    jvm: float
    workers: float
    driver: float
    broker: float

    @property
    def total(self) -> float:
        return sum(self)

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))

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

    def cpu(self) -> Cpu:
        jvm_s, workers_s, planners_s = cpu_of_jvm(self.jvm_pid)
        return Cpu(jvm_s, workers_s, time.process_time() + planners_s, self.server.usage().cpu_s)

    def taken(self, work: Callable[[], T]) -> tuple[T, Taken]:
        before, began_s = self.cpu(), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began_s
        return result, Taken(seconds, self.cpu().since(before))


def cpu_of_jvm(pid: int) -> tuple[float, float, float]:
    """Its own CPU, that of the Python workers of tasks, and that of the driver's planners, some of which ended."""
    own_s = time.clock_gettime((~pid << 3) | 2)
    process = Path("/proc") / str(pid)
    ended = (process / "stat").read_text().rpartition(")")[2].split()[13:15]
    workers_s, planners_s = 0.0, sum(map(int, ended)) / CLOCK_TICKS_PER_S
    for child in _children(process):
        try:
            command = (Path("/proc") / str(child) / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if TASK_WORKER in command.split(b"\0"):
            workers_s += usage_of(child).cpu_s
        else:
            planners_s += usage_of(child).cpu_s
    return own_s, workers_s, planners_s


def _children(process: Path) -> list[int]:
    found: list[int] = []
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


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
