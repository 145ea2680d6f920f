"""A host's tasks and threads on the simulated loop.

Thread work runs whole, at one virtual instant some time after it was asked for, and its future resolves some
time after that: a crash may fall before, between or after. At most `threads_max` pieces are under way at
once. Work in a child process does too; its sleeps put off what it tells, and its disk may crash the host
within it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moldau.runtime.ports import Child, ChildFailed, Clock, Disk
from moldau.runtime.supervision import Report, Spawner
from moldau.sim.loop import Life, SimLoop
from moldau.sim.random import SimRandom

T = TypeVar("T")

THREADS_MAX = 8


class SimTasks:
    __slots__ = (
        "_busy",
        "_clock",
        "_disk",
        "_life",
        "_loop",
        "_random",
        "_spawner",
        "_waiting",
        "delay_s",
        "threads_max",
    )

    def __init__(
        self,
        loop: SimLoop,
        life: Life,
        random: SimRandom,
        *,
        disk: Disk,
        clock: Clock,
        delay_s: tuple[float, float],
        report: Report,
        threads_max: int = THREADS_MAX,
    ) -> None:
        self._loop = loop
        self._life = life
        self._random = random
        self.delay_s = delay_s
        self._spawner = Spawner(loop, report=report, context=life.context)
        self._disk = disk
        self._clock = clock
        self._waiting: deque[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._busy = 0
        self.threads_max = threads_max

    def call_soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        self._life.check()
        return self._loop.call_soon(callback, *args, context=self._life.context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        self._life.check()
        return self._loop.call_later(delay_s, callback, *args, context=self._life.context)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        if not self._life.alive:
            work.close()
        self._life.check()
        return self._spawner.spawn(work, name=name)

    async def sleep(self, delay_s: float) -> None:
        due: asyncio.Future[None] = self._loop.create_future()
        timer = self.call_later(delay_s, _resolve, due)
        try:
            await due
        finally:
            timer.cancel()

    def in_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        self._life.check()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((future, work, args))
        self._start()
        return future

    def _start(self) -> None:
        while self._waiting and self._busy < self.threads_max:
            self._busy += 1
            self.call_later(self._random.between(*self.delay_s), self._execute, *self._waiting.popleft())

    def _execute(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        result, failure = self._off_the_loop(work, args)
        self.call_later(self._random.between(*self.delay_s), self._finish, future, result, failure)

    def _off_the_loop(self, work: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        self._life.in_thread = True
        try:
            return work(*args), None
        except Exception as error:
            return None, error
        finally:
            self._life.in_thread = False

    def _finish(self, future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
        self._busy -= 1
        self._start()
        if future.cancelled():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
            self._spawner.watch(future, "work in a thread")

    async def in_child(self, work: Callable[..., T], *args: Any, report: Callable[[Any], object]) -> T:
        slept_s: list[float] = []
        told: list[tuple[float, Any]] = []

        def tell(value: Any) -> None:
            told.append((sum(slept_s), value))

        await self.sleep(self._random.between(*self.delay_s))
        begun_s = self._loop.time()
        child = Child(self._disk, self._clock, slept_s.append, tell)
        result, failure = self._off_the_loop(work, (child, *args))
        for after_s, value in told:
            await self._sleep_until(begun_s + after_s)
            report(value)
        await self._sleep_until(begun_s + sum(slept_s))
        if failure is None:
            finished: T = result
            return finished
        if isinstance(failure, OSError):
            raise failure
        raise ChildFailed(f"{type(failure).__name__}: {failure}")

    async def _sleep_until(self, when_s: float) -> None:
        jitter_s = self._random.between(*self.delay_s)
        await self.sleep(max(0.0, when_s - self._loop.time()) + jitter_s)


def _resolve(due: asyncio.Future[None]) -> None:
    if not due.done():  # the sleeper may have been cancelled at this very instant
        due.set_result(None)
