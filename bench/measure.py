"""What a measurement is made of: readings, broker CPU around a piece of work, percentiles, medians with spread.

CPU is the broker's own, never wall time: two virtual cores are shared with the client that drives it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from bench.server import Target

MB = 1_000_000
TOUCHED_BYTES = 1 << 30
PAGE_BYTES = 4096
COMPACTION = "Latency beside a compaction"
GROUPS = "Groups"
CLUSTER = "Three brokers"
MANY_PARTITIONS = "Thousands of partitions"
FIXTURE = "Fixture for tests"
SECURITY = "TLS, ACLs and quotas"
ALONE = (GROUPS, COMPACTION, CLUSTER, MANY_PARTITIONS, FIXTURE, SECURITY)
"""Sections that can be measured without the others: no plot is made of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of one run, with what it is."""

    name: str
    value: float
    unit: str
    more_is_better: bool = False


class WorkNotDone(Exception):
    """Messages were refused, lost or not delivered: no number of that run means anything."""


class Meter:
    """The time and the broker's CPU that the body of a `with` block took."""

    def __init__(self, server: Target) -> None:
        self._server = server
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        self.cpu_s = -self._server.usage().cpu_s
        self.wall_s = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += self._server.usage().cpu_s


@dataclass
class Series:
    """The readings of one name, by broker."""

    unit: str
    more_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)

    def summary(self, broker: str) -> Summary | None:
        values = self.values.get(broker)
        return Summary(statistics.median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Summary:
    median: float
    least: float
    most: float


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    wanted = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in wanted.items()}


def latency_readings(what: str, latencies_s: Sequence[float]) -> list[Reading]:
    return [Reading(f"{what}, {name}", s * 1000, "ms") for name, s in percentiles(latencies_s).items()]


def settle_machine(size: int = TOUCHED_BYTES) -> None:
    """Have the machine in the same state before each run: nothing of an earlier one waits to be written, and memory
    was used and given back.

    A write to the disk would wait behind what another broker has left in the page cache. And a guest that hands free
    memory back to its host pays several times more for the first touch of a page: the run that comes first would pay
    it for all.
    """
    os.sync()
    block = bytearray(size)
    block[::PAGE_BYTES] = b"\1" * len(range(0, size, PAGE_BYTES))
    del block
