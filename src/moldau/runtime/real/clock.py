"""The system's clocks."""

from __future__ import annotations

import time


class RealClock:
    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
