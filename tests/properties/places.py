"""Where a log lives while it is tried: a simulated host whose power can go, or a folder of this machine.

Both run the real `LogManager` with one log. `crash` cuts the power: what was synced is there, of the rest the seed
says what is lost, torn or kept. `kill` ends the process only. On the simulated host a crash may also fall into any
single change of the disk (`crash_after`), and the disk may fail or be full.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log.cleaner.cleaner import CleanerSettings, LogCleaner
from moldau.log.host import LogHost, LogSettings, Owner
from moldau.log.inspect.findings import Finding, Seen
from moldau.log.inspect.folder import verify_folder
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.runtime.ports import Child, Disk, File, Runtime, Tasks
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.tasks import RealTasks
from moldau.sim.clock import WALL_START_MS
from moldau.sim.drive import DiskFaults
from moldau.sim.world import World
from properties.reading import last_stable_offset

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = uuid.UUID(int=7)
NEVER_S = 1e9
TIMERS_S = 0.3
"""What passes for timers when time passes: never as long as the manager waits with its own first retention check."""


@dataclass
class Outcome:
    value: Any = None
    error: OSError | None = None
    crashed: bool = False


class Place(ABC):
    runtime: Runtime
    manager: LogManager
    cleaner: LogCleaner
    folder: str

    def __init__(self, config: TopicConfig) -> None:
        self.config = config

    @property
    def log(self) -> Log:
        return self.manager.logs[PARTITION]

    async def _open(self) -> None:
        self.manager = LogManager(
            self.runtime,
            [self.folder],
            Owner("cluster", 1, 42),
            LogHost(lambda topic: self.config),
            lambda: LogSettings(checkpoint_interval_s=NEVER_S, retention_interval_s=NEVER_S),
        )
        await self.manager.open()
        log = self.manager.create(PARTITION, TOPIC_ID)
        if log.topic_id is None:  # a crash may leave the folder without its file
            log.adopt_topic_id(TOPIC_ID)
        self.cleaner = LogCleaner(
            self.runtime, self.manager, CleanerSettings, stable_offset_of=last_stable_offset
        )

    def open(self) -> Outcome:
        return self.run(self._open())

    def stop(self) -> None:
        """A clean stop."""
        outcome = self.run(self.manager.close())
        assert outcome.error is None and not outcome.crashed, outcome

    def verify(self) -> list[Finding]:
        return list(verify_folder(self.runtime.disk, self.folder, Seen(), records=True))

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, Any]) -> Outcome: ...
    @abstractmethod
    def now_ms(self) -> int: ...
    @abstractmethod
    def pass_time(self, seconds: float) -> None: ...
    @abstractmethod
    def crash(self) -> None: ...
    @abstractmethod
    def kill(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class SimPlace(Place):
    folder = "/data"

    def __init__(self, config: TopicConfig, seed: int, faults: DiskFaults) -> None:
        super().__init__(config)
        self.world = World(seed)
        self.host = self.world.host("broker", disk=faults)
        self.host.on_power_lost = self._power_lost
        self.drive = self.host.drive
        self._waiting: asyncio.Future[None] | None = None

    @property
    def runtime(self) -> Runtime:  # type: ignore[override]
        return self.host.runtime

    def run(self, work: Coroutine[Any, Any, Any]) -> Outcome:
        outcome = Outcome()

        async def guarded() -> None:
            try:
                outcome.value = await work
            except OSError as error:
                outcome.error = error

        self.world.run(self._in_host(guarded()))
        outcome.crashed = not self.host.alive
        failures, self.world.failures[:] = list(self.world.failures), []
        assert not failures, failures
        return outcome

    async def _in_host(self, work: Coroutine[Any, Any, None]) -> None:
        done = self._waiting = self.world.loop.create_future()
        task = self.host.runtime.tasks.spawn(work, name="step")
        task.add_done_callback(lambda _: self._wake(), context=contextvars.Context())
        await done
        if self.host.alive:
            task.result()

    def _power_lost(self) -> None:
        self.drive.forgive()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def now_ms(self) -> int:
        return self.host.clock.wall_ms()

    def pass_time(self, seconds: float) -> None:
        self.host.clock.skew_ms += round(seconds * 1000)
        self.world.run(self.world.sleep(TIMERS_S))

    def crash(self) -> None:
        self.host.crash()
        self.host.restart()

    def kill(self) -> None:
        self.host.kill()
        self.host.restart()

    def close(self) -> None:
        self.world.close()


class HandClock:
    """Time passes when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now_s * 1000)


class RealPlace(Place):
    """A temporary folder, on threads and files of this system."""

    def __init__(self, config: TopicConfig, seed: int) -> None:
        super().__init__(config)
        self.folder = tempfile.mkdtemp(prefix="moldau-properties-")
        self._random = random.Random(seed)
        self._loop = new_event_loop()
        self._clock = HandClock()
        self._start()

    def _start(self) -> None:
        real = self._loop.run_until_complete(self._runtime())
        self._disk = SyncedDisk(real.disk)
        self._real = real
        tasks = ChildrenInThreads(real.tasks, self._disk, self._clock)
        self.runtime = replace(real, clock=self._clock, disk=self._disk, tasks=tasks)  # type: ignore[arg-type]

    async def _runtime(self) -> Runtime:
        return real_runtime()

    def run(self, work: Coroutine[Any, Any, Any]) -> Outcome:
        async def guarded() -> Outcome:
            try:
                return Outcome(await work)
            except OSError as error:
                return Outcome(error=error)

        return self._loop.run_until_complete(guarded())

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def pass_time(self, seconds: float) -> None:
        self._clock.now_s += seconds
        self._loop.run_until_complete(asyncio.sleep(0))

    def crash(self) -> None:
        self._end()
        self._disk.lose_unsynced(self._random)
        self._start()

    def kill(self) -> None:
        self._end()
        self._start()

    def _end(self) -> None:
        """The threads' work that has begun is done; nothing else is."""
        tasks = self._real.tasks
        assert isinstance(tasks, RealTasks)
        self._loop.run_until_complete(self._cancel(tasks))
        close_runtime(self._real)
        self.manager.release()

    @staticmethod
    async def _cancel(tasks: RealTasks) -> None:
        await asyncio.gather(*tasks.cancel_all(), return_exceptions=True)

    def close(self) -> None:
        if hasattr(self, "manager"):
            self._end()
        self._loop.close()
        shutil.rmtree(self.folder)


class ChildrenInThreads:
    """Tasks whose child processes are threads: to start an interpreter takes longer than a whole sequence."""

    def __init__(self, tasks: Tasks, disk: SyncedDisk, clock: HandClock) -> None:
        self._tasks = tasks
        self._disk = disk
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)

    async def in_child(self, work: Callable[..., Any], *args: Any, report: Callable[[Any], object]) -> Any:
        def tell(value: Any) -> None:
            loop.call_soon_threadsafe(report, value)

        loop = asyncio.get_running_loop()
        child = Child(self._disk, self._clock, lambda seconds: None, tell)  # type: ignore[arg-type]
        return await self._tasks.in_thread(work, child, *args)


class SyncedDisk:
    """A disk that remembers how much of each file was synced. Names are durable at once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._synced: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False) -> SyncedFile:
        synced = self._disk.size(path) if self._disk.exists(path) else 0
        file = self._disk.open(path, create=create)
        self._synced.setdefault(path, synced)
        return SyncedFile(self, file)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self.renamed(source, target)

    def renamed(self, source: str, target: str) -> None:
        self._synced.pop(target, None)
        if source in self._synced:
            self._synced[target] = self._synced.pop(source)

    def remove(self, path: str) -> None:
        self._disk.remove(path)
        self._synced.pop(path, None)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._disk.write_atomic(path, data)
        self._synced.pop(path, None)

    def note_sync(self, path: str, size: int) -> None:
        self._synced[path] = size

    def note_truncate(self, path: str, size: int) -> None:
        if path in self._synced:
            self._synced[path] = min(size, self._synced[path])

    def lose_unsynced(self, chance: random.Random) -> None:
        for path, synced in sorted(self._synced.items()):
            size = os.path.getsize(path)
            fate = chance.randrange(4)
            left = chance.randrange(synced, size + 1) if size > synced else size
            if fate == 0:
                os.truncate(path, synced)
            elif fate == 1:
                os.truncate(path, left)
            elif fate == 2:  # the length was written, the data was not
                os.truncate(path, left)
                os.truncate(path, size)
        self._synced.clear()


class SyncedFile:
    def __init__(self, disk: SyncedDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        size = self._file.size()
        self._file.sync()
        self._disk.note_sync(self.path, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._disk.note_truncate(self.path, size)

    def rename(self, target: str) -> None:
        self._file.rename(target)
        self._disk.renamed(self.path, target)
        self.path = target


MakePlace = Callable[[TopicConfig, int], Place]
