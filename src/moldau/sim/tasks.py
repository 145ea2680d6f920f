"""A host's tasks and threads on the simulated loop.

Thread work runs whole, at one virtual instant some time after it was asked for, and its future resolves some
time after that: a crash may fall before, between or after. At most `threads_max` pieces are under way at
once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moldau.runtime.supervision import Report, Spawner
from moldau.sim.loop import Life, SimLoop
from moldau.sim.random import SimRandom

T = TypeVar("T")

THREADS_MAX = 8


class SimTasks:
    __slots__ = ("_busy", "_delay_s", "_life", "_loop", "_random", "_spawner", "_waiting", "threads_max")

    def __init__(
        self,
        loop: SimLoop,
        life: Life,
        random: SimRandom,
        *,
        delay_s: tuple[float, float],
        report: Report,
        threads_max: int = THREADS_MAX,
    ) -> None:
        self._loop = loop
        self._life = life
        self._random = random
        self._delay_s = delay_s
        self._spawner = Spawner(loop, report=report, context=life.context)
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
        timer = self.call_later(delay_s, due.set_result, None)
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
            self.call_later(self._random.between(*self._delay_s), self._execute, *self._waiting.popleft())

    def _execute(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        result: Any = None
        failure: Exception | None = None
        self._life.in_thread = True
        try:
            result = work(*args)
        except Exception as error:
            failure = error
        finally:
            self._life.in_thread = False
        self.call_later(self._random.between(*self._delay_s), self._finish, future, result, failure)

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
