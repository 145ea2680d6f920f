"""Readings by section, metric, case and side, and the share of the cores that others took meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.measure import Series
from bench.server import CLOCK_TICKS_PER_S, cpu_of, descendants

LOOK_S = 2.0


class Found(NamedTuple):
    """One number of one run of one side."""

    metric: str
    value: float
    unit: str
    more_is_better: bool = False


@dataclass
class Section:
    """The metrics of a section: for each, the cases (rows of its table) with the readings of every side."""

    metrics: dict[str, dict[str, Series]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    others_share: float = 0.0

    def add(self, case: str, side: str, found: Iterable[Found]) -> None:
        for each in found:
            cases = self.metrics.setdefault(each.metric, {})
            series = cases.setdefault(case, Series(each.unit, each.more_is_better))
            series.values.setdefault(side, []).append(each.value)

    def median(self, metric: str, case: str, side: str) -> float | None:
        series = self.metrics.get(metric, {}).get(case)
        summary = None if series is None else series.summary(side)
        return None if summary is None else summary.median

    def sides(self, metric: str) -> list[str]:
        """In the order in which they were measured first."""
        found = self.metrics.get(metric, {}).values()
        return list(dict.fromkeys(side for series in found for side in series.values))


@dataclass
class Results:
    sections: dict[str, Section] = field(default_factory=dict)

    def section(self, name: str) -> Section:
        return self.sections.setdefault(name, Section())

    @property
    def has_failures(self) -> bool:
        return any(section.failures for section in self.sections.values())

    def as_json(self) -> str:
        kept: dict[str, Any] = {
            name: {
                "others_share": section.others_share,
                "failures": section.failures,
                "readings": {
                    metric: {case: series.values for case, series in cases.items()}
                    for metric, cases in section.metrics.items()
                },
            }
            for name, section in self.sections.items()
        }
        return json.dumps(kept, indent=1)


class Others:
    """The share of the cores that was used by processes that are not this one's, while its block ran.

    Spark's daemon forgets the CPU of workers that end, so all processes are looked at while they run: what one has used
    since the last look before its end is taken for others'.
    """

    def __init__(self) -> None:
        self._cpu_s: dict[int, float] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)
        self.share = 0.0

    def __enter__(self) -> Self:
        self._look()
        self._busy_s, self._own_s = _busy_s(), sum(self._cpu_s.values())
        self._began_s = time.monotonic()
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()
        self._look()
        busy_s, own_s = _busy_s() - self._busy_s, sum(self._cpu_s.values()) - self._own_s
        cores_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        self.share = min(1.0, max(0.0, busy_s - own_s) / cores_s)

    def _look_on(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):  # it ended meanwhile
                self._cpu_s[pid] = cpu_of(pid)


def _busy_s() -> float:
    user, nice, system, _, _, irq, soft_irq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + soft_irq + steal) / CLOCK_TICKS_PER_S
