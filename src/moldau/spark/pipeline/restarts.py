"""How long a failed flow waits for its next start: longer each time, up to a bound, until it has done a batch."""

from __future__ import annotations

from dataclasses import dataclass

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
ONCE_FAILURES_MAX = 3
"""A run until caught up gives a flow so many tries."""


@dataclass(slots=True)
class Restarts:
    """Of one flow."""

    failures: int = 0
    """In a row, without a batch between them."""
    total: int = 0

    def batch_done(self) -> None:
        self.failures = 0

    def failed(self) -> float:
        """The seconds to wait now."""
        self.failures += 1
        self.total += 1
        return min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(self.failures - 1, 16))

    def has_given_up(self, once: bool) -> bool:
        return once and self.failures >= ONCE_FAILURES_MAX
