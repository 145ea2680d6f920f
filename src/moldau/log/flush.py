"""Bringing a log to the disk: one sync under way per log, and everyone who comes meanwhile shares the next.

What is to be done is taken together on the loop's thread and done on another one, in the order in which it
must become durable: small files (leader epochs, snapshots), segments that were rolled, then the active
segment. Only then does the recovery point move and are the waiting callbacks called.

A sync that failed is never repeated: after it Linux may hold the pages as clean although they are not on
the disk. The log is failed from then on, and everyone who waits gets the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.runtime.ports import Tasks

Flushed = Callable[[OSError | None], object]
"""Called once, on the loop, when everything appended before the request is on the disk, or never will be."""


class Flushable(Protocol):
    def take_flush_work(self) -> Callable[[], None]:
        """What must be done now to bring everything appended so far to the disk. Runs in a thread."""
        ...

    def flush_done(self) -> None:
        """The work that was taken last is done."""
        ...

    def fail(self, error: OSError) -> None: ...


class Flusher:
    __slots__ = ("_log", "_name", "_running", "_tasks", "_waiting", "_wanted", "error")

    def __init__(self, log: Flushable, tasks: Tasks, name: str) -> None:
        self._log = log
        self._tasks = tasks
        self._name = name
        self._waiting: list[Flushed] = []
        self._wanted = False
        self._running = False
        self.error: OSError | None = None

    def request(self, callback: Flushed | None = None) -> None:
        """Bring everything appended so far to the disk, then call back."""
        if self.error is not None:
            if callback is not None:
                self._tasks.call_soon(callback, self.error)
            return
        if callback is not None:
            self._waiting.append(callback)
        self._wanted = True
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), name=f"flush {self._name}")

    async def _run(self) -> None:
        try:
            while self._wanted and self.error is None:
                self._wanted = False
                waiting, self._waiting = self._waiting, []
                try:
                    await self._tasks.in_thread(self._log.take_flush_work())
                except OSError as error:
                    self.stop(error)
                else:
                    self._log.flush_done()
                for callback in waiting:
                    callback(self.error)
        finally:
            self._running = False

    def stop(self, error: OSError) -> None:
        """No sync of this log counts from now on."""
        if self.error is None:
            self.error = error
            waiting, self._waiting = self._waiting, []
            self._log.fail(error)
            for callback in waiting:
                callback(error)
