"""What a flow has done and how far behind it is, from the progress that Spark reports after each batch."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

RATE_S = 10.0
"""Rows per second are counted over so long."""
REPORTS_MAX = 1000
"""Of those within that time, the last so many."""


class State(Enum):
    WAITING = "waiting"
    """For flows that it depends on, or for its start."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """After a failure, in the pause before the next start."""
    DONE = "done"
    """Caught up, in a run that ends there."""
    STOPPED = "stopped"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not run, because one that it reads has failed."""


@dataclass(slots=True)
class FlowProgress:
    flow: str
    target: str
    kind: str
    """The target's kind, as it is called in sentences."""
    place: str
    state: State = State.WAITING
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    """Coming in, over the last ten seconds."""
    batch_ms: int = 0
    lag: int | None = None
    """Records of its topics that it has not read; None where the sources do not tell."""
    state_rows: int = 0
    state_bytes: int = 0
    restarts: int = 0
    error: str | None = None
    restart_in_s: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=REPORTS_MAX))

    def take(self, report: Mapping[str, Any], now: float) -> None:
        """One of Spark's reports: after a batch, or now and then while there is nothing to do."""
        rows = int(report.get("numInputRows") or 0)
        if is_batch(report):
            durations = report["durationMs"]
            self.batches += 1
            self.rows += rows
            self.batch_ms = int(report.get("batchDuration") or durations.get("triggerExecution") or 0)
            self.error = None
            self._recent.append((now, rows))
        self.lag = lag(report.get("sources") or ())
        operators = report.get("stateOperators") or ()
        self.state_rows = sum(int(operator.get("numRowsTotal") or 0) for operator in operators)
        self.state_bytes = sum(int(operator.get("memoryUsedBytes") or 0) for operator in operators)

    def count_rate(self, now: float) -> None:
        recent = list(self._recent)  # in one step: reports come from another thread
        self.rows_per_s = sum(rows for at, rows in recent if now - at < RATE_S) / RATE_S

    def document(self) -> dict[str, Any]:
        shown = {one.name: getattr(self, one.name) for one in fields(self) if not one.name.startswith("_")}
        return {**shown, "state": self.state.value}


def is_batch(report: Mapping[str, Any]) -> bool:
    """Whether it tells of a batch that was done, and not of a query that waits."""
    return "addBatch" in (report.get("durationMs") or {})


def lag(sources: Any) -> int | None:
    """How many records of topics lie between what is read and what there is."""
    known = [pair for source in sources for pair in positions(source)]
    return sum(max(0, latest - read) for read, latest in known) if known else None


def positions(source: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """(read, latest) of each partition, where a source counts by topic and partition: `{"orders": {"0": 17}}`."""
    read, latest = topics_of(source.get("endOffset")), topics_of(source.get("latestOffset"))
    for topic, partitions in latest.items():
        for partition, offset in partitions.items():
            yield read.get(topic, {}).get(partition, 0), offset


def topics_of(offset: Any) -> dict[str, dict[str, int]]:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict):
        return {}
    return {
        topic: {key: value for key, value in partitions.items() if isinstance(value, int)}
        for topic, partitions in offset.items()
        if isinstance(partitions, dict)
    }
