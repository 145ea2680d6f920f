"""When a process that has ended is started again: at once, or after a pause where it ends at once again and again."""

from __future__ import annotations

STEADY_S = 2.0
"""A process that has worked for so long has not failed at its start."""
PAUSE_S = 0.5
PAUSE_S_MAX = 30.0


class Restarts:
    """Of one process."""

    def __init__(self) -> None:
        self.failures = 0
        """How often in a row it ended before it worked, or soon after."""

    def pause_s(self, worked_s: float | None) -> float:
        """How long to wait now that it has ended; `worked_s` is how long it was ready for, None if it never was."""
        if worked_s is not None and worked_s >= STEADY_S:
            self.failures = 0
            return 0.0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(self.failures - 2, 16))
