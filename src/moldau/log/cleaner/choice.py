"""Which part of a log can be compacted, and which log is compacted next: Kafka's rules.

What lies below the first dirty offset was compacted before. Behind it only closed segments are compacted,
below the first open transaction, and those whose newest record is older than `min.compaction.lag.ms`. The log
with the largest dirty share goes first, if that share is above `min.cleanable.dirty.ratio`; one that has waited
for `max.compaction.lag.ms` counts whatever its share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.config.topic import TopicConfig
from moldau.log.cleaner.job import GROUP_SEGMENTS_MAX, Source
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY, read_waiting
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.log.segments import Segments

LAG_FOREVER_MS = 2**62
"""Lags from here on are no limit (Kafka's default is 2^63 - 1)."""


class Dirty(NamedTuple):
    """What there is to compact in a log."""

    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that cannot be compacted yet."""
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """`max.compaction.lag.ms` is over for some of it."""

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.ratio > min_ratio or (self.overdue and self.cleanable_bytes > 0)


def first_dirty_offset(cleaned_to: int | None, log_start_offset: int, next_offset: int) -> int:
    """What the checkpoint says, unless the log no longer fits it: then all of the log is dirty."""
    if cleaned_to is None or not log_start_offset <= cleaned_to <= next_offset:
        return log_start_offset
    return cleaned_to


def look_at(
    segments: Segments, dirty_offset: int, stable_offset: int, config: TopicConfig, now_ms: int
) -> Dirty:
    """Blocks: give it a copy, in a thread."""
    bases = segments.bases
    first_dirty = max(0, bisect_right(bases, dirty_offset) - 1)
    dirty = range(first_dirty, len(bases) - 1)
    end_offset = min(stable_offset, bases[-1])
    lag_ms = max(0, config.min_compaction_lag_ms)
    if lag_ms > 0:
        too_young = (bases[i] for i in dirty if segments.newest_ms(i, read_waiting) > now_ms - lag_ms)
        end_offset = min(end_offset, next(too_young, end_offset))
    first_uncleanable = max(0, bisect_right(bases, end_offset) - 1)
    sizes = [segments.by_number(index).size for index in range(first_uncleanable)]
    return Dirty(
        dirty_offset,
        bases[first_uncleanable],
        sum(sizes[: bisect_left(bases, dirty_offset)]),
        sum(sizes[first_dirty:]),
        _is_overdue(segments, dirty, config.max_compaction_lag_ms, now_ms),
    )


def _is_overdue(segments: Segments, dirty: range, lag_ms: int, now_ms: int) -> bool:
    if lag_ms >= LAG_FOREVER_MS:
        return False
    for index in dirty:
        segment = segments.by_number(index)
        if segment.size:
            segment.load_first_timestamp(read_waiting)
            if 0 < (segment.first_timestamp or 0) < now_ms - max(0, lag_ms):
                return True
    return False


class Shape(NamedTuple):
    """A segment, in what matters for how many of them can become one."""

    base_offset: int
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def shapes_below(segments: Segments, end_offset: int) -> list[Shape]:
    """Of all segments that lie wholly below an offset. Blocks: give it a copy, in a thread."""
    found = []
    for index in range(bisect_left(segments.bases, end_offset)):
        segment = segments.by_number(index)
        index_bytes = segment.offsets.count * OFFSET_ENTRY.size, segment.times.count * TIME_ENTRY.size
        found.append(Shape(segment.base_offset, segment.size, *index_bytes))
    return found


def groups_of(
    shapes: Sequence[Shape], end_offset: int, segment_bytes: int, index_bytes: int
) -> tuple[tuple[Source, ...], ...]:
    """Neighbours that become one: their sizes now would fit into one segment, and so would their offsets."""
    groups: list[list[Shape]] = []
    ends = [*(shape.base_offset for shape in shapes[1:]), end_offset]
    for shape, next_offset in zip(shapes, ends, strict=True):
        if not groups or not _fits(groups[-1], shape, next_offset - 1, segment_bytes, index_bytes):
            groups.append([])
        groups[-1].append(shape)
    return tuple(tuple(Source(shape.base_offset, shape.size) for shape in group) for group in groups)


def _fits(group: list[Shape], shape: Shape, last_offset: int, segment_bytes: int, index_bytes: int) -> bool:
    def total(values: Iterable[int], more: int) -> int:
        return sum(values) + more

    return (
        len(group) < GROUP_SEGMENTS_MAX
        and total((one.size for one in group), shape.size) <= segment_bytes
        and total((one.offset_index_bytes for one in group), shape.offset_index_bytes) <= index_bytes
        and total((one.time_index_bytes for one in group), shape.time_index_bytes) <= index_bytes
        and (shape.size == 0 or last_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX)
    )
