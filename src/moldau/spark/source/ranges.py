"""What a batch reads of each partition, and how that is cut into tasks, by the rules of Spark's connector.

Pure, and by offsets and options alone: a batch that runs again is cut the same way, on any number of cores. Sinks
that write exactly once rely on it. Answers to KafkaMicroBatchStream.rateLimit and KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor

from moldau.spark.source.offsets import Offsets, TopicPartition

OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Of one partition; it ends before `next_offset`."""

    partition: TopicPartition
    first_offset: int
    next_offset: int

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
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """The tasks' ranges, in order. Empty ones are left out, and ones that go backwards."""
    wanted = sorted((each for each in ranges if each.size > 0), key=lambda each: each.partition)
    if max_records_per_partition is not None:
        wanted = [
            part
            for each in wanted
            for part in _parts(each, ceil(each.size / max_records_per_partition))
            if part.size
        ]
    if min_partitions is None or min_partitions <= len(wanted):
        return wanted
    return _cut_large_ones(wanted, min_partitions)


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
        if part.size
    ]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(floor(size / total * parts + 0.5), 1)


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    parts = []
    first = whole.first_offset
    for left in range(count, 0, -1):
        following = first + (whole.next_offset - first) // left
        parts.append(replace(whole, first_offset=first, next_offset=following))
        first = following
    return parts
