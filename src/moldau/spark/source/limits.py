"""Where a query starts, and where a batch query ends, as its options say it. `resolve` makes offsets of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from moldau.spark.source.offsets import Offsets


class NoMatch(Enum):
    """What to do where no record is as young as the timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class Group:
    """The committed offsets of the query's group; earliest where it has none."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """Of every partition that is read; -1 is latest, -2 earliest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    timestamps_ms: Offsets
    no_match: NoMatch


@dataclass(frozen=True, slots=True)
class Timestamp:
    timestamp_ms: int
    no_match: NoMatch


Limit = Earliest | Latest | Group | SpecificOffsets | SpecificTimestamps | Timestamp
