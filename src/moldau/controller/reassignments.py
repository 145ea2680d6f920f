"""Decisions on moving partitions to other brokers, with Kafka's answers. Pure.

A broker that is alone is the only place for a partition, so the one reassignment that it can grant is to leave a
partition where it is; Kafka grants it, too, and nothing is ever in progress.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.controller.placement import check_manual_assignment
from moldau.metadata.image import ClusterImage


def check_reassignment(image: ClusterImage, place: TopicPartition, replicas: Sequence[int] | None) -> None:
    """Whether a partition is on these brokers already; None cancels what is in progress. KafkaError where not."""
    topic = image.topics.get(place.topic)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {place.topic}.")
    if not 0 <= place.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"Unable to find partition {place.topic}:{place.partition}.",
        )
    if replicas is None:
        raise KafkaError(ErrorCode.no_reassignment_in_progress)
    check_manual_assignment(image.brokers, replicas)
