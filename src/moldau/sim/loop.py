"""A deterministic asyncio loop with virtual time: plain coroutines, futures and tasks run on it unchanged.

Callbacks run in the order in which they became due; of two timers due at one instant the older one goes
first. Every callback takes a fixed tiny time, and when nothing is ready the clock jumps to the next timer. So
a run has no selector, no thread and no real clock in it, and two runs of one program are the same, step by
step. A program in which nothing can happen any more is an error (`Deadlock`), and so is one that never ends
(`StepsExceeded`).

A callback belongs to the `Life` that is in its context: one run of one host, from start to crash. When a life
ends, whatever belongs to it never runs again, as after a power cut. While a life is paused (SIGSTOP), what is due of it
is kept; when it goes on, all of that runs, in the order in which it became due.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

START_S = 1000.0
"""Not zero, so that nobody mistakes the first instant for a deadline that is not set."""
STEP_S = 1e-6
"""What one callback takes. A loop that polls until a deadline thereby reaches it."""
STEPS_MAX = 50_000_000
CANCELLED_TIMERS_MIN = 256
CLOSE_ATTEMPTS = 16
"""Awaits in nested `finally` blocks that a coroutine of an ended life is torn out of."""


class Deadlock(Exception):
    """Nothing is ready, no timer runs, and the awaited future is not done."""


class StepsExceeded(Exception):
    """The run took more callbacks than its bound."""


class HostCrashed(BaseException):
    """Raised by every port of a host that has crashed. Not an `Exception`: no handler of the host may catch
    it."""


class Life:
    """One run of one host. `context` marks what belongs to it."""

    __slots__ = ("alive", "context", "host", "in_thread", "is_paused", "kept", "number")

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.alive = True
        self.is_paused = False
        self.kept: list[asyncio.Handle] = []
        """What became due during a pause."""
        self.in_thread = False
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def check(self) -> None:
        if not self.alive:
            raise HostCrashed(f"{self.host} (life {self.number}) has crashed")


CURRENT: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(
        self, *, report: Callable[[str, BaseException | None], None], steps_max: int = STEPS_MAX
    ) -> None:
        self.steps = 0
        self._steps_max = steps_max
        self._report = report
        self._now = START_S
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_started = 0
        self._timers_cancelled = 0
        self._tasks: dict[asyncio.Task[Any], Life | None] = {}
        self._world = contextvars.Context()
        self._stopping = False
        self._running = False
        self._closed = False

    def time(self) -> float:
        return self._now

    # Scheduling

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_started += 1
        heapq.heappush(self._timers, (when, self._timers_started, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def in_world(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call later, whoever lives or dies until then: what the network and the hardware do."""
        return self.call_later(delay, callback, *args, context=self._world)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > max(CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        context = context or contextvars.copy_context()
        task = asyncio.Task(coro, loop=self, name=name, context=context, **options)
        self._tasks[task] = context.get(CURRENT)
        task.add_done_callback(self._task_done, context=self._world)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    # Running

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop(), context=self._world)
        self.run_forever()
        return task.result()

    def run_forever(self) -> None:
        self._stopping = False
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._run_one()
        finally:
            asyncio._set_running_loop(None)
            self._running = False

    def _run_one(self) -> None:
        self._collect_due()
        handle = self._ready.popleft()
        if handle._cancelled:
            return
        life = handle._context.get(CURRENT)  # type: ignore[attr-defined]
        if life is not None:
            if not life.alive:
                return
            if life.is_paused:
                life.kept.append(handle)
                return
        self.steps += 1
        if self.steps > self._steps_max:
            raise StepsExceeded(f"{self._steps_max} callbacks were not enough\n{self._pending()}")
        self._now += STEP_S
        handle._run()

    def _collect_due(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or timers[0][0] <= self._now or not self._ready):
            when, _, timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer.cancelled():
                self._timers_cancelled -= 1
            else:
                self._now = max(self._now, when)
                self._ready.append(timer)
        if not self._ready:
            raise Deadlock(f"nothing can happen any more\n{self._pending()}")

    def _pending(self) -> str:
        """The tasks that wait, for the person who looks for the reason."""
        lines = [f"  {life.host if life else 'world'}: {task}" for task, life in self._tasks.items()]
        return "\n".join(lines[:50])

    # Pauses, and the end of a life

    def pause(self, life: Life) -> None:
        """Nothing that belongs to `life` runs before it goes on."""
        life.is_paused = True

    def go_on(self, life: Life) -> None:
        life.is_paused = False
        self._ready.extend(life.kept)
        life.kept.clear()

    def end(self, life: Life) -> None:
        """Nothing that belongs to `life` runs again. Its coroutines are closed here and now, in the order in
        which they were started, rather than whenever the collector finds them: they hold dead ports, so their
        `finally` blocks reach nothing."""
        life.alive = False
        life.kept.clear()
        self._bury([task for task, owner in self._tasks.items() if owner is life], life.context)

    def _bury(self, tasks: list[asyncio.Task[Any]], context: contextvars.Context) -> None:
        for task in tasks:
            self._tasks.pop(task, None)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            if coroutine.cr_running:  # it asked for its own end: after it has come to rest
                self.call_soon(self._bury, [task], context, context=self._world)
            else:
                context.copy().run(_close, coroutine)

    def close(self) -> None:
        if not self._closed:
            for life in dict.fromkeys(self._tasks.values()):
                if life is not None:
                    self.end(life)
            self._bury(list(self._tasks), self._world)
            self._ready.clear()
            self._timers.clear()
            self._closed = True

    # What asyncio asks of a loop

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    def get_exception_handler(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, HostCrashed) and not self._closed:
            self._report(str(context.get("message")), error)


def _close(coroutine: Any) -> None:
    for _ in range(CLOSE_ATTEMPTS):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaited something on its way out
        except BaseException:
            pass
        return
