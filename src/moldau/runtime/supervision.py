"""Tasks that are neither lost nor silent: what `Tasks.spawn` promises, over any asyncio loop.

asyncio keeps only weak references to tasks and reports a failure when the task is collected, which for a task
that somebody holds is never. `Spawner` keeps a task until it is done, and logs its failure as soon as it is
certain that nobody was waiting for it. Tasks are kept, and cancelled, in the order in which they were
started.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger("moldau.tasks")


Report = Callable[[str, BaseException], None]
"""Told of a failure that nobody waits for: the name of the work, and what it raised."""


def log_failure(name: str, error: BaseException) -> None:
    logger.error("%s failed: %s", name, error or type(error).__name__, exc_info=error)


class Spawner:
    __slots__ = ("_context", "_loop", "_report", "_running")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        report: Report = log_failure,
        context: contextvars.Context | None = None,
    ) -> None:
        self._loop = loop
        self._report = report
        self._context = context
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        context = self._context.copy() if self._context else None
        task: asyncio.Task[T] = self._loop.create_task(work, name=name, context=context)
        self._running[task] = None
        task.add_done_callback(self._done, context=context)
        return task

    def cancel_all(self) -> list[asyncio.Task[Any]]:
        """Ask everything that still runs to end; the tasks, oldest first, for the caller to await."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        return tasks

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        self.watch(task, task.get_name())

    def watch(self, done: asyncio.Future[Any], name: str) -> None:
        """Report the failure of a future that is done, unless somebody waits for it: whoever does was woken
        before what is queued now."""
        if not done.cancelled() and not self._loop.is_closed():
            self._loop.call_soon(self._report_if_unseen, done, name)

    def _report_if_unseen(self, done: asyncio.Future[Any], name: str) -> None:
        if getattr(done, "_log_traceback", True):  # asyncio's own mark of a failure that nobody has retrieved
            error = done.exception()
            if error is not None:
                self._report(name, error)
