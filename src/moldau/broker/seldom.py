"""What goes wrong again and again is said at most every so often: it must not fill the log, nor the memory."""

from __future__ import annotations

from moldau.base.limits import SAID_LATELY_MAX
from moldau.runtime.ports import Clock


class Seldom:
    """Says yes for each thing at most once in `every_s`; no for all others while so many have been said lately."""

    def __init__(self, clock: Clock, every_s: float = 10.0) -> None:
        self._clock = clock
        self._every_s = every_s
        self._said_s: dict[object, float] = {}  # the oldest first

    def __call__(self, thing: object) -> bool:
        said_s, now_s = self._said_s, self._clock.monotonic()
        while said_s and now_s - said_s[oldest := next(iter(said_s))] >= self._every_s:
            del said_s[oldest]
        if thing in said_s or len(said_s) >= SAID_LATELY_MAX:
            return False
        said_s[thing] = now_s
        return True
