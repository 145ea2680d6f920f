"""Measurements in bounded memory: a histogram of latencies, and throughput over time."""

from __future__ import annotations

import math
from collections.abc import Iterator

# Each bucket is 2 % wider than the one before: percentiles are right to 1 %, from 1 us up, in some 1,000 buckets.
_GROWTH = math.log(1.02)
_LEAST_S = 1e-6
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
SAMPLES_MAX = 4096


class Latencies:
    """Durations in seconds, counted in buckets that grow by 2 %."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        if seconds > self.max_s:
            self.max_s = seconds
        bucket = int(math.log(seconds / _LEAST_S) / _GROWTH) if seconds > _LEAST_S else 0
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile(self, percent: float) -> float:
        """The latency that `percent` of all did not exceed; 0 where nothing was measured."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_LEAST_S * math.exp((bucket + 0.5) * _GROWTH), self.max_s)
        return self.max_s

    def as_ms(self) -> dict[str, float]:
        """Mean, percentiles and maximum in milliseconds, as they are reported."""
        mean_s = self.total_s / self.count if self.count else 0.0
        named = {"mean": mean_s} | {f"p{percent:g}": self.percentile(percent) for percent in PERCENTILES}
        return {name: round(seconds * 1000, 3) for name, seconds in (named | {"max": self.max_s}).items()}

    def classes(self) -> list[tuple[float, float, int]]:
        """(from, to, count) in seconds over steps of 1, 2, 5, 10, ..., from the first that is not empty to the last."""
        steps = list(_one_two_five())
        counts = [0] * (len(steps) - 1)
        for bucket, count in self._buckets.items():
            seconds = _LEAST_S * math.exp((bucket + 0.5) * _GROWTH)
            index = next((i for i, step in enumerate(steps[1:]) if seconds < step), len(counts) - 1)
            counts[index] += count
        filled = [index for index, count in enumerate(counts) if count]
        if not filled:
            return []
        return [(steps[i], steps[i + 1], counts[i]) for i in range(filled[0], filled[-1] + 1)]


def _one_two_five() -> Iterator[float]:
    yield 0.0
    for exponent in range(-6, 3):
        for factor in (1, 2, 5):
            yield factor * 10.0**exponent


class Throughput:
    """Bytes over time, in equal slices; two slices become one where a run would need too many."""

    def __init__(self, slice_s: float = 0.1) -> None:
        self.slice_s = slice_s
        self._slices: list[int] = []

    def add(self, elapsed_s: float, size: int) -> None:
        index = int(elapsed_s / self.slice_s)
        while index >= SAMPLES_MAX:
            self._halve()
            index = int(elapsed_s / self.slice_s)
        if index >= len(self._slices):
            self._slices.extend([0] * (index + 1 - len(self._slices)))
        self._slices[index] += size

    def _halve(self) -> None:
        self._slices = [sum(self._slices[i : i + 2]) for i in range(0, len(self._slices), 2)]
        self.slice_s *= 2

    def rates(self, points: int) -> list[float]:
        """Bytes per second in at most `points` equal stretches. The last slice is left out: it is not a whole one."""
        slices = self._slices[:-1] or self._slices
        width = max(1, math.ceil(len(slices) / points))
        stretches = [slices[i : i + width] for i in range(0, len(slices), width)]
        return [sum(stretch) / (len(stretch) * self.slice_s) for stretch in stretches]
