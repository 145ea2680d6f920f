"""How much is measured, and what the sections are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

READING: Final = "Reading"
COUNTING: Final = "Counting"
JSON: Final = "JSON"
FALLBACK: Final = "Without numba"
LATENCY: Final = "Latency"
IDLE: Final = "Idle"
PARTITIONS: Final = "Partitions"
SINK: Final = "Topic sink"
SECTIONS: Final = (READING, COUNTING, JSON, FALLBACK, LATENCY, IDLE, PARTITIONS, SINK)
"""In the order of the page."""


@dataclass(frozen=True, slots=True)
class Plan:
    runs: int
    """Of every case, the sides in turn; what is shown is their median."""
    rows_100_b: int
    rows_1_kb: int
    rows_json: int
    codecs: tuple[str, ...]
    partitions: tuple[int, ...]
    latency_s: float
    latency_runs: int
    single_records: int
    """Sent one by one into an idle query."""
    long_idle_s: float
    """Longer than Spark keeps an idle Python worker: a minute, looked at every ten seconds. 0: not measured."""
    idle_s: float
    partition_counts: tuple[int, ...]
    batches: int
    sink_rows_100_b: int
    sink_rows_1_kb: int

    def rows(self, size: int) -> int:
        return self.rows_100_b if size == 100 else self.rows_1_kb

    def sink_rows(self, size: int) -> int:
        return self.sink_rows_100_b if size == 100 else self.sink_rows_1_kb


QUICK = Plan(
    runs=1,
    rows_100_b=200_000,
    rows_1_kb=40_000,
    rows_json=50_000,
    codecs=("none", "zstd"),
    partitions=(4,),
    latency_s=2,
    latency_runs=1,
    single_records=3,
    long_idle_s=0,
    idle_s=2,
    partition_counts=(1, 8),
    batches=8,
    sink_rows_100_b=50_000,
    sink_rows_1_kb=10_000,
)
FULL = Plan(
    runs=3,
    rows_100_b=3_000_000,
    rows_1_kb=600_000,
    rows_json=1_000_000,
    codecs=("none", "lz4", "zstd"),
    partitions=(1, 4),
    latency_s=8,
    latency_runs=2,
    single_records=12,
    long_idle_s=75,
    idle_s=6,
    partition_counts=(1, 4, 16, 64),
    batches=16,
    sink_rows_100_b=600_000,
    sink_rows_1_kb=150_000,
)
