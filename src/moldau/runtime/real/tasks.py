"""The asyncio loop, one bounded pool of threads, and child processes.

Guarantees: a spawned task is kept alive until it is done, and its failure is logged when nobody waits for it;
at most `threads_max` pieces of blocking work run at once, further ones wait in the order in which they came.
The queue of waiting work has no bound of its own: callers keep one piece under way each (one sync per log,
one cold read per connection).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.runtime.ports import Timer
from moldau.runtime.real.features import Features
from moldau.runtime.supervision import Spawner

if TYPE_CHECKING:
    from moldau.runtime.real.children import Children

T = TypeVar("T")

THREADS_MAX = 8
"""Blocking work is fsync and cold reads: a disk gains nothing from more of them at once, memory does lose."""


class RealTasks:
    __slots__ = ("_children", "_executor", "_features", "_loop", "_spawner", "call_later", "call_soon")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        features: Features | None = None,
        *,
        threads_max: int = THREADS_MAX,
    ) -> None:
        self._loop = loop
        self._spawner = Spawner(loop)
        self._features = features or Features.detect()
        self._children: Children | None = None
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix="moldau-io")
        self.call_soon: Callable[..., object] = loop.call_soon
        self.call_later: Callable[..., Timer] = loop.call_later

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self._spawner.spawn(work, name=name)

    def in_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future = self._loop.run_in_executor(self._executor, work, *args)
        future.add_done_callback(self._thread_done)
        return future

    async def in_child(self, work: Callable[..., T], *args: Any, report: Callable[[Any], object]) -> T:
        if self._children is None:
            from moldau.runtime.real.children import Children  # slow to import, and many never need it

            self._children = Children(self._loop, self._features)
        return await self._children.run(work, args, report)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def cancel_all(self) -> list[asyncio.Task[Any]]:
        return self._spawner.cancel_all()

    def close(self) -> None:
        """End the child processes, and the threads: work under way in these is finished, work that has not
        begun is dropped."""
        if self._children is not None:
            self._children.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _thread_done(self, future: asyncio.Future[Any]) -> None:
        self._spawner.watch(future, "work in a thread")
