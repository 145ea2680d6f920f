"""DescribeTopicPartitions (75): topics in the order of their names, a page of partitions at a time.

A page ends after the client's limit or `max.request.partition.size.limit`, whichever is smaller, and
`next_cursor` names what comes after it. A topic that is not there counts for nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.broker.interface import AdminBroker, AdminContext
from moldau.broker.topic_view import OPERATIONS_UNASKED, TOPIC_OPERATIONS, partition_view, topic_view
from moldau.controller.names import invalid_topic_name
from moldau.metadata.image import Topic

API_KEY = 75
VERSIONS = (0, 0)


def handle(broker: AdminBroker, context: AdminContext, request: Any) -> object:
    cursor = request.cursor
    asked = sorted({topic.name for topic in request.topics}) or sorted(broker.image.topics)
    names = [name for name in asked if cursor is None or name >= cursor.topic_name]
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        refused = [
            _missing(topic.name, ErrorCode.invalid_request, OPERATIONS_UNASKED) for topic in request.topics
        ]
        return SimpleNamespace(throttle_time=0, topics=tuple(refused), next_cursor=None)
    limit = max(1, min(request.response_partition_limit, broker.config["max.request.partition.size.limit"]))
    topics, next_cursor = _page(broker, names, cursor, limit)
    return SimpleNamespace(throttle_time=0, topics=tuple(topics), next_cursor=next_cursor)


def _page(
    broker: AdminBroker, names: list[str], cursor: Any, room: int
) -> tuple[list[SimpleNamespace], SimpleNamespace | None]:
    topics: list[SimpleNamespace] = []
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room == 0:
            return topics, _cursor(name, first)
        topic = broker.image.topics.get(name)
        if topic is None:
            is_valid = invalid_topic_name(name) is None
            error = ErrorCode.unknown_topic_or_partition if is_valid else ErrorCode.invalid_topic_exception
            topics.append(_missing(name, error, TOPIC_OPERATIONS))
            continue
        stop = min(first + room, len(topic.partitions))
        topics.append(_part(broker, topic, first, stop))
        room -= max(0, stop - first)
        if stop < len(topic.partitions):
            return topics, _cursor(name, stop)
    return topics, None


def _part(broker: AdminBroker, topic: Topic, first: int, stop: int) -> SimpleNamespace:
    partitions = tuple(
        partition_view(
            broker.image, TopicPartition(topic.name, index), topic.partitions[index], broker.offline
        )
        for index in range(first, stop)
    )
    return topic_view(topic, partitions, TOPIC_OPERATIONS)


def _missing(name: str, error: ErrorCode, operations: int) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=error,
        name=name,
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _cursor(name: str, partition: int) -> SimpleNamespace:
    return SimpleNamespace(topic_name=name, partition_index=partition)
