"""Virtual clocks: every host's monotonic clock is the loop's, its wall clock is off by a skew of its own."""

from __future__ import annotations

from moldau.sim.loop import START_S, SimLoop

WALL_START_MS = 1_700_000_000_000


class SimClock:
    __slots__ = ("_loop", "monotonic", "skew_ms")

    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self.monotonic = loop.time

    def wall_ms(self) -> int:
        return WALL_START_MS + self.skew_ms + int((self._loop.time() - START_S) * 1000)
