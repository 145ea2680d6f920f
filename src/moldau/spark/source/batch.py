"""A batch query's plan: all that its options name, as it is when the query runs. Answers to KafkaBatch."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from moldau.spark.source.cluster import Cluster
from moldau.spark.source.errors import OptionError
from moldau.spark.source.limits import Earliest, Latest
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
    first = resolve(options.starting or Earliest(), cluster, topics.partitions, is_start=True, group=group)
    after = resolve(options.ending or Latest(), cluster, topics.partitions, is_start=False, group=group)
    for each in sorted(first):
        if first[each] > after[each]:
            raise OptionError(
                GREATER.format(
                    first=first[each], last=after[each], topic=each.topic, partition=each.partition
                )
            )
    ranges = [OffsetRange(each, first[each], after[each]) for each in first]
    return cut(ranges, options.min_partitions, options.max_records_per_partition), topics.ids
