"""A batch query's plan: all that its options name. Answers to KafkaBatch.

Spark keeps it with the frame, and plans no more when the frame is read again. So earliest and latest are bound by the
tasks, each when it starts, as Spark's connector does it; partitions that are new since are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from moldau.spark.source.cluster import Cluster
from moldau.spark.source.errors import OptionError
from moldau.spark.source.limits import Earliest, Latest, Limit, SpecificOffsets
from moldau.spark.source.offsets import EARLIEST, LATEST, TopicPartition
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange, cut
from moldau.spark.source.resolve import resolve

GREATER = """The resolved start offset {first} is greater than the resolved end offset {last} for topic {topic} \
partition {partition}. Please investigate in this order:
1. Check whether start offset is set beyond the end offset or the latest available offset after resolution.
2. Check whether the Kafka topic-partition is deleted and re-created."""


def plan(options: SourceOptions, cluster: Cluster) -> tuple[list[OffsetRange], Mapping[str, UUID]]:
    """The tasks' ranges, and the ids of their topics."""
    topics = cluster.topics()
    group = options.progress_group
    starting, ending = options.starting or Earliest(), options.ending or Latest()
    first = resolve(starting, cluster, topics.partitions, is_start=True, group=group)
    after = resolve(ending, cluster, topics.partitions, is_start=False, group=group)
    for each in sorted(first):
        if first[each] > after[each]:
            raise OptionError(
                GREATER.format(
                    first=first[each], last=after[each], topic=each.topic, partition=each.partition
                )
            )
    ranges = [
        OffsetRange(each, first[each], after[each], _is_earliest(starting, each), _is_latest(ending, each))
        for each in first
    ]
    return cut(ranges, options.min_partitions, options.max_records_per_partition), topics.ids


def _is_earliest(limit: Limit, partition: TopicPartition) -> bool:
    return limit == Earliest() or (
        isinstance(limit, SpecificOffsets) and limit.offsets[partition] == EARLIEST
    )


def _is_latest(limit: Limit, partition: TopicPartition) -> bool:
    return limit == Latest() or (isinstance(limit, SpecificOffsets) and limit.offsets[partition] == LATEST)
