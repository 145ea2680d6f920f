"""How late the event loop is: a timer that is due ten times a second, and when it comes.

One loop serves everyone, so this is how long anybody may have waited before the broker even looked at a request.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.metrics.counters import Histogram
from moldau.runtime.ports import Runtime, Timer

INTERVAL_S: Final = 0.1
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopDelay:
    def __init__(self, runtime: Runtime) -> None:
        self.delays = Histogram(BOUNDS_S)
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._due_s = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        self._due_s = self._clock.monotonic() + INTERVAL_S
        self._timer = self._tasks.call_later(INTERVAL_S, self._on_time)

    def _on_time(self) -> None:
        self.delays.observe(max(0.0, self._clock.monotonic() - self._due_s))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
