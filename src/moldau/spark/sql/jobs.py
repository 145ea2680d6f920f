"""One statement's work in a thread of its own, so that Ctrl-C ends the work and not the process.

A call into the JVM cannot be interrupted: the main thread waits here instead, and on Ctrl-C asks Spark to cancel
what runs, again and again until the work has ended, since a job may be about to start. Work that does not end in
GRACE_S (it waits for a broker, say) is left to itself: its thread is a daemon, and nobody looks at its result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
GRACE_S = 10.0
AGAIN_S = 0.2
QUIET_ROUNDS = 2
"""A query's next job may be about to start when its last one is cancelled."""


class Cancel:
    """Shared by the work and who waits for it."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._actions: list[Callable[[], Any]] = []

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def by(self, action: Callable[[], Any]) -> None:
        """What ends the work, and says whether there was any. It may be called several times, and after the end."""
        self._actions.append(action)

    def ask(self) -> bool:
        """Whether there was still something to end."""
        self._asked.set()
        found = False
        for action in self._actions:
            with suppress(Exception):  # what it is to end may just have ended
                found = bool(action()) or found
        return found


class Work(Generic[T]):
    def __init__(self, function: Callable[[Cancel], T]) -> None:
        self._function = function
        self._cancel = Cancel()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-sql", daemon=True)

    def _run(self) -> None:
        try:
            self._result = self._function(self._cancel)
        except BaseException as error:
            self._error = error

    def wait(self) -> T:
        """Its result or its error; KeyboardInterrupt after Ctrl-C, when it has ended or is given up."""
        self._thread.start()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._end()
            raise
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _end(self) -> None:
        """A second Ctrl-C does not wait."""
        quiet = 0
        for _ in range(int(GRACE_S / AGAIN_S)):
            found = self._cancel.ask() or self._thread.is_alive()
            quiet = 0 if found else quiet + 1
            if quiet == QUIET_ROUNDS:
                return
            time.sleep(AGAIN_S)


def interruptible(function: Callable[[Cancel], T]) -> T:
    return Work(function).wait()
