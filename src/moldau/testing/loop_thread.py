"""An event loop on a thread of its own, with the real ports: where a broker lives beside the code that tests it. Its
data are thrown away, so that a sync does not wait for the disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.features import Features
from moldau.runtime.real.tasks import RealTasks

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


class LoopThread:
    """Runs from its construction until `close`, after which neither the thread nor the loop is left."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._runtime: Future[Runtime] = Future()
        self._wake: threading.Event | None = None
        self._last_words: Callable[[], object] | None = None
        # A daemon: a test run that forgets to close it can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.runtime = self._runtime.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._runtime.set_result(real_runtime(self._loop, features=Features.detect(syncs=False)))
        self._loop.run_forever()
        close_runtime(self.runtime)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self._loop.close()

    async def _cancel_tasks(self) -> None:
        assert isinstance(self.runtime.tasks, RealTasks)
        for task in self.runtime.tasks.cancel_all():
            await asyncio.wait((task,))

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine there."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for itself: call it from another thread")
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float) -> T:
        """Run a coroutine there, and wait for its result."""
        future = self.begin(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    @property
    def is_paused(self) -> bool:
        return self._wake is not None

    def pause(self) -> None:
        """Nothing runs there until `resume`, as in a process that was stopped (SIGSTOP)."""
        if self._wake is None:
            wake, asleep = threading.Event(), threading.Event()
            self._wake = wake
            self._loop.call_soon_threadsafe(self._sleep, asleep, wake)
            asleep.wait()

    def _sleep(self, asleep: threading.Event, wake: threading.Event) -> None:
        asleep.set()
        wake.wait()
        last_words, self._last_words = self._last_words, None
        if last_words is not None:
            last_words()

    def resume(self, first: Callable[[], object] | None = None) -> None:
        """Go on; `first` runs before anything that has been waiting."""
        wake, self._wake = self._wake, None
        if wake is not None:
            self._last_words = first
            wake.set()

    def close(self) -> None:
        self.resume()
        self.call(self._cancel_tasks, timeout_s=CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
