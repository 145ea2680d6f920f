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


class SeldomOfEach:
    """The same, and of each client at most so many things in that time: one with many does not hide all others."""

    def __init__(self, clock: Clock, every_s: float, each_max: int) -> None:
        self._clock = clock
        self._every_s = every_s
        self._each_max = each_max
        self._seldom = Seldom(clock, every_s)
        self._said: dict[object, int] = {}  # of each client, in the current window
        self._window_s = 0.0

    def __call__(self, client: object, thing: object) -> bool:
        now_s = self._clock.monotonic()
        if now_s - self._window_s >= self._every_s:
            self._said, self._window_s = {}, now_s
        count = self._said.get(client, 0)
        if count >= self._each_max or not self._seldom(thing):
            return False
        self._said[client] = count + 1
        return True
