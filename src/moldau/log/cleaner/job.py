"""What a compaction is asked to do, and what it tells: values that travel between the broker and the child."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.log.transactions import Aborted

GROUP_SEGMENTS_MAX = 64
"""Segments that become one at a time: they are renamed in one turn of the loop."""


class Source(NamedTuple):
    """A closed segment that is to be compacted."""

    base_offset: int
    size: int


class LastRecord(NamedTuple):
    """Where an active producer's state hangs: the batch that holds it is never removed."""

    offset: int | None
    """The last offset of the producer's last batch of data; None where only a marker is left of it."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Job:
    folder: str
    groups: tuple[tuple[Source, ...], ...]
    """Segments in order; those of a group become one."""
    end_offset: int
    """The first offset that stays out of it: no record from here on is looked at."""
    now_ms: int
    delete_retention_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    """By producer id."""
    aborted: tuple[Aborted, ...] = ()
    """Aborted transactions with records below `end_offset`; the markers of some may lie behind it."""
    dedupe_bytes: int = 128 * 1024 * 1024
    """Memory for finding the last record of each key, whatever their number."""
    io_bytes: int = 512 * 1024
    bytes_per_second: float = float("inf")
    """Reading and writing together."""

    @property
    def sources(self) -> list[Source]:
        return [source for group in self.groups for source in group]


class Replaced(NamedTuple):
    """New segments that are complete and durable, as `.cleaned` files, and those whose place they take."""

    old: tuple[int, ...]
    new: tuple[int, ...]


class Summary(NamedTuple):
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    bytes_read: int
    bytes_written: int
    duration_s: float
