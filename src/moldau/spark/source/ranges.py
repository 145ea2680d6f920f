"""What a batch reads of each partition, and how that is cut into tasks: by the rules of Spark's connector, but for
small ranges, which share a task.

Pure, and by offsets and options alone: a batch that runs again is cut the same way, on any number of cores. Sinks
that write exactly once rely on it. Answers to KafkaMicroBatchStream.rateLimit and KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor

from moldau.spark.source.offsets import Offsets, TopicPartition

OFFSET_MAX = 2**63 - 1
GROWING_MAX = 8
"""Ranges of one task that may have grown when they are read: it reads them one after the other."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Of one partition; it ends before `next_offset`.

    A batch's frame is planned once and read any number of times. So its tasks, as those of Spark's connector, find
    out by themselves where the log begins and ends by then, where the options say earliest or latest.
    """

    partition: TopicPartition
    first_offset: int
    next_offset: int
    from_earliest: bool = False
    to_latest: bool = False

    @property
    def size(self) -> int:
        return self.next_offset - self.first_offset


def limit_offsets(
    limit: int, first: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> Offsets:
    """At most about `limit` offsets, shared by the backlog of each partition; no partition with a backlog gets none."""
    sizes = {
        partition: offset - first[partition]
        for partition, offset in latest.items()
        if partition in first and offset > first[partition]
    }
    total = sum(sizes.values())
    limited = dict(latest)
    for partition, size in sizes.items():
        share = limit * (size / total)
        step = ceil(share) if share < 1 else floor(share)
        limited[partition] = min(latest[partition], first[partition] + step, OFFSET_MAX)
    return limited


def cut(
    ranges: Collection[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """The ranges to read, in order. Empty ones are left out unless they may grow, and ones that go backwards."""
    wanted = sorted((each for each in ranges if each.size > 0), key=lambda each: each.partition)
    empty = [each for each in ranges if each.size == 0 and each.to_latest]
    if max_records_per_partition is not None:
        wanted = [
            part for each in wanted for part in _parts(each, ceil(each.size / max_records_per_partition))
        ]
    if min_partitions is not None and min_partitions > len(wanted) > 0:
        wanted = _cut_large_ones(wanted, min_partitions)
    return sorted(wanted + empty, key=lambda each: (each.partition, each.first_offset))


def grouped(
    ranges: Iterable[OffsetRange],
    together: int,
    min_partitions: int | None,
    max_records_per_partition: int | None,
) -> list[list[OffsetRange]]:
    """The tasks: ranges with few offsets share one, which has at most so many together.

    A task costs a multiple of what a few records do. Whoever asks for `minPartitions` has tasks of one range each.
    """
    together = min(together, max_records_per_partition or together)
    tasks: list[list[OffsetRange]] = []
    small: list[OffsetRange] = []
    offsets = 0
    for each in ranges:
        if each.size >= together or (min_partitions is not None and each.size):
            tasks.append([each])
            continue
        is_full = offsets + each.size > together or (each.to_latest and len(small) >= GROWING_MAX)
        if not small or is_full:
            small, offsets = [], 0
            tasks.append(small)
        small.append(each)
        offsets += each.size
    return tasks


def _cut_large_ones(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """In proportion to their sizes, where the ones that stay whole do not count."""
    total = sum(each.size for each in ranges)
    whole = [each for each in ranges if _part_count(each.size, total, min_partitions) == 1]
    partitions_whole = {each.partition for each in whole}
    rest = total - sum(each.size for each in whole)
    parts_rest = max(min_partitions - len(whole), 1)
    return [
        part
        for each in ranges
        for part in _parts(
            each, 1 if each.partition in partitions_whole else _part_count(each.size, rest, parts_rest)
        )
    ]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(floor(size / total * parts + 0.5), 1)


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Without empty ones. What came since is read with the last one."""
    parts = []
    first = whole.first_offset
    for left in range(count, 0, -1):
        following = first + (whole.next_offset - first) // left
        to_latest = whole.to_latest and left == 1
        if following > first:
            parts.append(replace(whole, first_offset=first, next_offset=following, to_latest=to_latest))
        first = following
    return parts
