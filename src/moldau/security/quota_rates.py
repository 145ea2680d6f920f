"""How much a client has used of a quota, and how long it has to wait: Kafka's Rate, QuotaUtils and TokenBucket. Pure.

A rate is what was recorded over the last samples, divided by their time: at least all samples but one, whole, plus what
has passed of the last. Who is over the limit waits until the rate would be back at it, if nothing came meanwhile.
A bucket of tokens is refilled at the limit, up to what the whole window allows, and may be drawn below zero by one who
finds it at zero or above (KIP-599): so long has the next one to wait.

Times are milliseconds, as in Kafka. Neither needs to be kept when it is idle for as long as its window: a new one says
the same (`is_idle`).
"""

from __future__ import annotations

from collections import deque
from math import floor, inf
from typing import NamedTuple

MS_MAX = float((1 << 31) - 1)


class QuotaWindow(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms

    @property
    def least_ms(self) -> int:
        """The shortest time that a rate is taken over."""
        return (self.samples - 1) * self.sample_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


_NEVER = _Sample(-(1 << 62))
"""Of a rate that nothing was recorded of."""


class Rate:
    """What is used of a quota of so much a second."""

    __slots__ = ("_limit", "_sample", "_samples", "_window", "allowed", "total")

    def __init__(self, window: QuotaWindow, limit: float = inf) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()
        self._sample = _NEVER
        self.total = 0.0
        """What the samples have."""
        self.allowed = 0.0
        """With no more than that nobody has to wait, whenever it was used."""
        self.limit = limit

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        self.allowed = limit * (self._window.least_ms / 1000)

    def use(self, value: float, now_ms: int) -> int:
        """Record it, and say how long to wait for the rate to be back at the limit."""
        sample = self._sample
        if now_ms - sample.start_ms >= self._window[1]:
            sample = self._begin_sample(now_ms)
        sample.value += value
        sample.last_ms = now_ms
        self.total = total = self.total + value
        return 0 if total <= self.allowed else self.throttle_ms(now_ms)  # nearly always 0

    def record(self, value: float, now_ms: int) -> None:
        """A negative value takes back what was recorded."""
        self.use(value, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        limit = self._limit
        if self.total <= self.allowed:
            return 0
        window_ms = self._window_ms(now_ms)
        rate = self.total / (window_ms / 1000)
        return _rounded((rate - limit) / limit * window_ms) if rate > limit else 0

    def rate(self, now_ms: int) -> float:
        window_ms = self._window_ms(now_ms)
        return self.total / (window_ms / 1000)

    def is_idle(self, now_ms: int) -> bool:
        return now_ms - self._sample.last_ms >= self._window.length_ms

    def _begin_sample(self, now_ms: int) -> _Sample:
        self._sample = sample = _Sample(now_ms)
        self._samples.append(sample)
        if len(self._samples) > self._window.samples + 1:  # one may overlap the window's beginning
            self._samples.popleft()
        self._forget_old(now_ms)
        self.total = sum(sample.value for sample in self._samples)
        return sample

    def _forget_old(self, now_ms: int) -> None:
        """A sample counts as a whole as long as something of it is in the window."""
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._window.length_ms:
            self.total -= samples.popleft().value

    def _window_ms(self, now_ms: int) -> int:
        """The time that the samples are of; never less than all but one of them take."""
        self._forget_old(now_ms)
        if not self._samples:
            self._begin_sample(now_ms)
        elapsed_ms = now_ms - self._samples[0].start_ms
        missing = self._window.samples - 1 - elapsed_ms // self._window.sample_ms
        if missing > 0:
            elapsed_ms += missing * self._window.sample_ms
        return max(elapsed_ms, 1)


class TokenBucket:
    """What is left of a quota that may be used in one go, for what is bought rarely and in lumps."""

    __slots__ = ("_last_ms", "_tokens", "_window", "limit")

    def __init__(self, window: QuotaWindow, limit: float = inf) -> None:
        self.limit = limit
        """Tokens that come each second."""
        self._window = window
        self._tokens = inf
        self._last_ms = 0

    @property
    def _most(self) -> float:
        return self._window.length_ms / 1000 * self.limit

    def tokens(self, now_ms: int) -> float:
        if self.limit == inf:
            return inf
        if self._tokens == inf:  # it begins full
            self._tokens = self._most
        else:
            earned = self.limit * (now_ms - self._last_ms) / 1000
            self._tokens = min(self._most, self._tokens + earned)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, now_ms: int) -> None:
        """However many there are."""
        if self.limit != inf:
            self._tokens = min(self._most, self.tokens(now_ms) - count)

    def throttle_ms(self, now_ms: int) -> int:
        """How long to wait for there to be a token, or none missing."""
        tokens = self.tokens(now_ms)
        return _rounded(-tokens / self.limit * 1000) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        return self.tokens(now_ms) >= self._most


def _rounded(value_ms: float) -> int:
    """As Java's Math.round, up to what an answer can say."""
    return floor(min(value_ms, MS_MAX) + 0.5)
