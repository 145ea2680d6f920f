"""Tasks that are neither lost nor silent: what `Tasks.spawn` promises, over any asyncio loop.

asyncio keeps only weak references to tasks and reports a failure when the task is collected, which for a task
that somebody holds is never. `Spawner` keeps a task until it is done, and logs its failure as soon as it is
certain that nobody was waiting for it. Tasks are kept, and cancelled, in the order in which they were
started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger("moldau.tasks")


class Spawner:
    __slots__ = ("_loop", "_running", "_wrap")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wrap: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None = None,
    ) -> None:
        self._loop = loop
        self._running: dict[asyncio.Task[Any], None] = {}
        self._wrap = wrap

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task: asyncio.Task[T] = self._loop.create_task(self._wrap(work) if self._wrap else work, name=name)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    def cancel_all(self) -> list[asyncio.Task[Any]]:
        """Ask everything that still runs to end; the tasks, oldest first, for the caller to await."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        return tasks

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            # Whoever awaits the task is woken by a callback that was queued together with this one: look
            # after it ran.
            self._loop.call_soon(log_if_unseen, task)


def log_if_unseen(future: asyncio.Future[Any]) -> None:
    """Log a failure that nobody has retrieved, once. `_log_traceback` is asyncio's own mark for exactly
    that."""
    if getattr(future, "_log_traceback", True):
        error = future.exception()
        if error is not None:
            name = future.get_name() if isinstance(future, asyncio.Task) else "work in a thread"
            logger.error("%s failed: %s", name, error or type(error).__name__, exc_info=error)
