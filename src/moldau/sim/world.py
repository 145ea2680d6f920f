"""A seeded world: hosts with clocks, disks, threads and a network between them, in one process and virtual
time.

    with World(seed) as world:
        broker = world.host("broker-1", disk=DiskFaults(cold_rate=0.1))
        broker.runtime.tasks.spawn(node(broker.runtime), name="node")
        world.run(scenario(world))

Everything that happens follows from the seed: `digest()` is equal for two runs of one program, in whatever
process. Draws for faults come from streams of their own, so that a fault that is switched off changes nothing
else.

A host's `runtime` is good for one life. `crash()` cuts its power: nothing of it runs again, and its disk
keeps what was synced and some of the rest. `kill()` ends its process only: the disk keeps everything.
`restart()` starts the next life with a new runtime on what the disk kept. `pause()` stops its process as SIGSTOP
does, while the system goes on to take its connections and bytes; `go_on()` lets it run again, with time passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from moldau.runtime.ports import Runtime
from moldau.sim.clock import SimClock
from moldau.sim.disk import SimDisk
from moldau.sim.drive import DiskFaults, Drive
from moldau.sim.fabric import Fabric, Link
from moldau.sim.loop import STEPS_MAX, Life, SimLoop
from moldau.sim.net import SimNet, Station
from moldau.sim.random import SimRandom
from moldau.sim.tasks import SimTasks
from moldau.sim.trace import Trace

T = TypeVar("T")
logger = logging.getLogger("moldau.sim")

THREAD_DELAY_S = (0.000_05, 0.003)


class Unhandled(NamedTuple):
    """A failure in a host's task or callback that nobody waited for."""

    host: str
    name: str
    error: BaseException | None


class World:
    def __init__(self, seed: int | str, *, link: Link | None = None, steps_max: int = STEPS_MAX) -> None:
        self.seed = seed
        self.random = SimRandom(seed)
        self.failures: list[Unhandled] = []
        # Sockets, signals and subprocesses of asyncio's own are absent on purpose.
        self.loop = SimLoop(report=self._loop_failure, steps_max=steps_max)  # type: ignore[abstract]
        self.trace = Trace(self.loop.time)
        self.net = Fabric(self.loop, self.random.fork("network"), self.trace, link or Link())
        self.hosts: dict[str, SimHost] = {}
        self.stations: dict[str, Station] = {}

    def host(
        self,
        name: str,
        *,
        disk: DiskFaults | None = None,
        wall_skew_ms: int = 0,
        thread_delay_s: tuple[float, float] = THREAD_DELAY_S,
    ) -> SimHost:
        """Add a host, with its power on. Others reach it by its name or its address."""
        if name in self.hosts:
            raise ValueError(f"there is a host {name} already")
        self.stations[name] = Station(self.net, name, f"10.0.0.{len(self.hosts) + 1}")
        host = SimHost(self, name, disk or DiskFaults(), wall_skew_ms, thread_delay_s)
        self.hosts[name] = host
        return host

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of no host, such as a scenario, to its end."""
        result: T = self.loop.run_until_complete(work)
        return result

    async def sleep(self, delay_s: float) -> None:
        """For scenarios; hosts have the sleep of their Tasks."""
        due: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.in_world(delay_s, due.set_result, None)
        try:
            await due
        finally:
            timer.cancel()

    def digest(self) -> str:
        """Of everything that has happened so far."""
        self.trace.record("world", "digest", self.loop.steps)
        return self.trace.digest()

    def failed(self, host: str, name: str, error: BaseException | None) -> None:
        self.failures.append(Unhandled(host, name, error))
        self.trace.record(host, "failed", name, type(error).__name__)
        logger.error("%s: %s failed", host, name, exc_info=error)

    def _loop_failure(self, message: str, error: BaseException | None) -> None:
        self.failed("loop", message, error)

    def close(self) -> None:
        self.loop.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SimHost:
    def __init__(
        self,
        world: World,
        name: str,
        disk: DiskFaults,
        wall_skew_ms: int,
        thread_delay_s: tuple[float, float],
    ) -> None:
        self.name = name
        self.station = world.stations[name]
        self.clock = SimClock(world.loop, wall_skew_ms)
        self.drive = Drive(world.random.fork(f"disk of {name}"), disk)
        self.drive.crash_host = self.crash
        self.on_power_lost: Callable[[], object] = lambda: None
        """Called after every power cut, whoever made it."""
        self._world = world
        self._random = world.random.fork(f"host {name}")
        self._thread_delay_s = thread_delay_s
        self._lives = 0
        self._life: Life
        self._tasks: SimTasks
        self.runtime: Runtime
        self._start()

    @property
    def alive(self) -> bool:
        return self._life.alive

    @property
    def is_paused(self) -> bool:
        return self._life.is_paused

    @property
    def lives(self) -> int:
        """How often it was started."""
        return self._lives

    @property
    def address(self) -> str:
        return self.station.address

    def crash(self) -> None:
        """Cut the power: unsynced bytes are lost, torn or kept, and the other hosts hear nothing of it."""
        self._end("crash", power_lost=True)
        self.drive.platter.crash()
        self.on_power_lost()

    def kill(self) -> None:
        """End the process, as kill -9 does: the system goes on, keeps the page cache and closes the
        connections."""
        self._end("kill", power_lost=False)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: it holds what it has and hears nothing."""
        if self.alive and not self.is_paused:
            self._world.trace.record(self.name, "pause")
            self._world.loop.pause(self._life)

    def go_on(self) -> None:
        """Let a paused process run again, as SIGCONT does."""
        if self.alive and self.is_paused:
            self._world.trace.record(self.name, "go on")
            self._world.loop.go_on(self._life)

    def slow_down(self, thread_delay_s: tuple[float, float] | None = None) -> None:
        """Let work in threads, and so the disk, take this long; without a time, as long as at first."""
        self._tasks.delay_s = thread_delay_s or self._thread_delay_s

    def restart(self) -> Runtime:
        """Start the next life; a host that is alive is crashed first."""
        if self.alive:
            self.crash()
        self._start()
        self._world.net.power(self.name, on=True)
        self._world.trace.record(self.name, "restart", self._lives)
        return self.runtime

    def _end(self, kind: str, *, power_lost: bool) -> None:
        if self.alive:
            self._world.trace.record(self.name, kind)
            self.station.end(power_lost=power_lost)
            self.drive.host_ended()
            if power_lost:
                self._world.net.power(self.name, on=False)
            self._world.loop.end(self._life)

    def _start(self) -> None:
        self._lives += 1
        life = self._life = Life(self.name, self._lives)
        disk = SimDisk(self.drive, life, self._world.trace, self.clock.wall_ms)
        tasks = self._tasks = SimTasks(
            self._world.loop,
            life,
            self._random.fork("threads"),
            disk=disk,
            clock=self.clock,
            delay_s=self._thread_delay_s,
            report=self._report,
        )
        self.runtime = Runtime(
            clock=self.clock,
            random=self._random.fork("life"),
            tasks=tasks,
            net=SimNet(self._world.stations, self.name, life, tasks, self._report),
            disk=disk,
        )

    def _report(self, name: str, error: BaseException) -> None:
        self._world.failed(self.name, name, error)
