"""An event loop on a thread of its own, with the real ports: where a broker lives beside the code that tests it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.tasks import RealTasks

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


class LoopThread:
    """Runs from its construction until `close`, after which neither the thread nor the loop is left."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._runtime: Future[Runtime] = Future()
        # A daemon: a test run that forgets to close it can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.runtime = self._runtime.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._runtime.set_result(real_runtime(self._loop))
        self._loop.run_forever()
        close_runtime(self.runtime)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self._loop.close()

    async def _cancel_tasks(self) -> None:
        assert isinstance(self.runtime.tasks, RealTasks)
        for task in self.runtime.tasks.cancel_all():
            await asyncio.wait((task,))

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float) -> T:
        """Run a coroutine there, and wait for its result."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for itself: call it from another thread")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        self.call(self._cancel_tasks, timeout_s=CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
