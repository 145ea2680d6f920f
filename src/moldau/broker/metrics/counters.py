"""What a broker counts while it serves: plain attributes on the data path, read when somebody asks.

Traffic by topic is counted in `replication.traffic`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

DURATION_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""From what a small Produce takes to what a long poll may."""


class Histogram:
    """How often something took how long. `counts` has one more than there are bounds: for what is above all of them."""

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds


UNTIMED: Final = Histogram(DURATION_BOUNDS_S)
"""For what is timed otherwise, or not at all. Nobody reads it."""


class ApiFigures:
    """Of the requests of one API."""

    __slots__ = ("durations", "errors", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: dict[int, int] = {}
        """In answers, by error code."""
        self.durations = Histogram(DURATION_BOUNDS_S)

    def note_error(self, error: int) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1

    def add_errors(self, errors: Mapping[int, int]) -> None:
        for error, count in errors.items():
            self.errors[error] = self.errors.get(error, 0) + count


@dataclass(slots=True)
class Metrics:
    bytes_in: int = 0
    bytes_out: int = 0
    connections_opened: int = 0
    connections_closed: int = 0
    connections_held_back: int = 0
    tls_handshakes: int = 0
    tls_handshakes_failed: int = 0
    connections_paced: int = 0
    malformed_requests: int = 0
    unsupported_requests: int = 0
    authentications: int = 0
    authentications_failed: int = 0
    sessions_expired: int = 0
    produce_refused: int = 0
    fetched_bytes: int = 0
    fetches_parked: int = 0
    cold_reads: int = 0
    flushes: int = 0
    read_errors: int = 0
    throttled: dict[str, int] = field(default_factory=dict)
    throttle_s: dict[str, float] = field(default_factory=dict)
    """Answers to clients that were over a quota, and how long these wait, by the quota's kind."""
    apis: dict[str, ApiFigures] = field(default_factory=dict)

    def note_throttled(self, quota: str, wait_s: float) -> None:
        self.throttled[quota] = self.throttled.get(quota, 0) + 1
        self.throttle_s[quota] = self.throttle_s.get(quota, 0.0) + wait_s

    @property
    def requests(self) -> dict[str, int]:
        return {api: figures.requests for api, figures in self.apis.items()}

    def of_api(self, name: str) -> ApiFigures:
        return self.apis.setdefault(name, ApiFigures())
