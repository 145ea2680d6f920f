"""Offsets of what the options say: earliest, latest, by time, by the group, or given one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from moldau.spark.source.cluster import Cluster
from moldau.spark.source.errors import OptionError
from moldau.spark.source.limits import (
    Earliest,
    Group,
    Latest,
    Limit,
    NoMatch,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
)
from moldau.spark.source.offsets import EARLIEST, LATEST, Offsets, TopicPartition, listed

Latests = Callable[[Iterable[TopicPartition]], Offsets]
NO_RECORD: Final = -1
"""What brokers answer where no record is as young as a timestamp."""


def resolve(
    limit: Limit,
    cluster: Cluster,
    partitions: frozenset[TopicPartition],
    *,
    is_start: bool,
    group: str | None,
    latest: Latests | None = None,
) -> Offsets:
    """`latest` says where the partitions end, if it is not to be asked for."""
    latest = latest or cluster.latest
    match limit:
        case Earliest():
            return cluster.earliest(partitions)
        case Latest():
            return latest(partitions)
        case Group():
            assert group is not None
            committed = cluster.committed(group, partitions)
            return cluster.earliest(partitions - committed.keys()) | committed
        case SpecificOffsets(offsets):
            _check_all_are_given(offsets, partitions)
            return _late_ones(offsets, cluster, latest)
        case SpecificTimestamps(timestamps_ms, no_match):
            _check_times_are_given(timestamps_ms, partitions, is_start)
            return _at_times(timestamps_ms, no_match, cluster, is_start, latest)
        case Timestamp(timestamp_ms, no_match):
            return _at_times(dict.fromkeys(partitions, timestamp_ms), no_match, cluster, is_start, latest)


def _at_times(
    timestamps_ms: Mapping[TopicPartition, int],
    no_match: NoMatch,
    cluster: Cluster,
    is_start: bool,
    latest: Latests,
) -> Offsets:
    found = cluster.at_times(timestamps_ms)
    for partition in sorted(found):
        if found[partition] != NO_RECORD:
            continue
        if is_start and no_match is NoMatch.ERROR:
            raise OptionError(
                f"No offset matched from request of topic-partition {partition} and timestamp "
                f"{timestamps_ms[partition]}."
            )
        found[partition] = LATEST
    return _late_ones(found, cluster, latest)


def _late_ones(offsets: Offsets, cluster: Cluster, latest: Latests) -> Offsets:
    firsts = cluster.earliest([partition for partition, offset in offsets.items() if offset == EARLIEST])
    lasts = latest([partition for partition, offset in offsets.items() if offset == LATEST])
    return offsets | firsts | lasts


def _check_all_are_given(offsets: Offsets, partitions: frozenset[TopicPartition]) -> None:
    if offsets.keys() != partitions:
        raise OptionError(
            "If startingOffsets contains specific offsets, you must specify all TopicPartitions.\n"
            "Use -1 for latest, -2 for earliest, if you don't care.\n"
            f"Specified: {listed(offsets)} Assigned: {listed(partitions)}"
        )


def _check_times_are_given(
    timestamps_ms: Offsets, partitions: frozenset[TopicPartition], is_start: bool
) -> None:
    if timestamps_ms.keys() != partitions:
        raise OptionError(
            f"Partitions specified for Kafka timestamp based {'start' if is_start else 'end'} offsets don't match "
            "what are assigned. Maybe topic partitions are created or deleted while the query is running, or you "
            f"didn't specify all the partitions. Specified: {listed(timestamps_ms)} Assigned: {listed(partitions)}"
        )
