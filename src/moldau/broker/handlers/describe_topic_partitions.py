"""DescribeTopicPartitions (75): topics in the order of their names, a page of partitions at a time.

- v0: KIP-966

A page ends after the client's limit or `max.request.partition.size.limit`, whichever is smaller, and
`next_cursor` names what comes after it. A topic that is not there counts for nothing. A partition without a leader
has the leader -1 and, unlike in Metadata, no error, as in Kafka's `KRaftMetadataCache`.
"""

from __future__ import annotations

from bisect import bisect_left

from moldau.base.errors import ErrorCode
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.metadata import Cursor, DescribeTopicPartitionsResponse, TopicShown
from moldau.broker.guard import may, may_quietly, operations
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.paced import ELEMENTS_PER_PAUSE
from moldau.broker.topic_view import Viewer
from moldau.controller.names import invalid_topic_name
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 75
VERSIONS = (0, 0)

DESCRIBE_TOPIC = right("DescribeTopicPartitions", Operation.DESCRIBE, Resource.TOPIC)


def handle(
    broker: ClusterView, context: RequestContext, request: Request
) -> Slices[DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    named = set()
    for number, topic in enumerate(request.topics):
        named.add(topic.name)
        if number % ELEMENTS_PER_PAUSE == 0:
            yield
    asked = sorted(named or broker.image.topics)
    yield
    names = asked if cursor is None else asked[bisect_left(asked, cursor.topic_name) :]
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        refused = [
            _missing(topic.name, ErrorCode.invalid_request, OPERATIONS_UNASKED) for topic in request.topics
        ]
        return DescribeTopicPartitionsResponse(tuple(refused))
    limit = max(1, min(request.response_partition_limit, broker.config["max.request.partition.size.limit"]))
    viewer = Viewer(broker.image, context.listener_name)
    shown, denied = yield from _visible(broker, context, names, are_all=not named)
    topics, next_cursor = yield from _page(broker, context, viewer, shown, cursor, limit)
    return DescribeTopicPartitionsResponse((*topics, *denied), next_cursor)


def _visible(
    broker: ClusterView, context: RequestContext, names: list[str], *, are_all: bool
) -> Slices[tuple[list[str], list[TopicShown]]]:
    """Those that the client may see, and what is said of the others that it has named."""
    if broker.guard is None:
        return names, []
    shown, denied = [], []
    asks = may_quietly if are_all else may
    for number, name in enumerate(names):
        if number % ELEMENTS_PER_PAUSE == 0:
            yield
        if asks(broker, context, DESCRIBE_TOPIC, name):
            shown.append(name)
        elif not are_all:
            denied.append(TopicShown(DESCRIBE_TOPIC.error, name, None, False))
    return shown, denied


def _page(
    broker: ClusterView,
    context: RequestContext,
    viewer: Viewer,
    names: list[str],
    cursor: Request,
    room: int,
) -> Slices[tuple[list[TopicShown], Cursor | None]]:
    topics: list[TopicShown] = []
    for name in names:
        yield
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room == 0:
            return topics, Cursor(name, first)
        topic = broker.image.topics.get(name)
        may_do = operations(broker, context, Resource.TOPIC, name)
        if topic is None:
            is_valid = invalid_topic_name(name) is None
            error = ErrorCode.unknown_topic_or_partition if is_valid else ErrorCode.invalid_topic_exception
            topics.append(_missing(name, error, may_do))
            continue
        stop = min(first + room, len(topic.partitions))
        topics.append((yield from viewer.showing(topic, may_do, first, stop)))
        room -= max(0, stop - first)
        if stop < len(topic.partitions):
            return topics, Cursor(name, stop)
    return topics, None


def _missing(name: str, error: ErrorCode, may_do: int) -> TopicShown:
    return TopicShown(error, name, None, name in INTERNAL_TOPICS, topic_authorized_operations=may_do)
