"""AlterPartitionReassignments (45): partitions to other brokers. There are none: `controller.reassignments` decides."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.controller.reassignments import check_reassignment

API_KEY = 45
VERSIONS = (0, 1)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    if not request.topics:  # Kafka's answer is then its message's defaults
        return _answer(allow_change=True, message="", topics=())
    topics = tuple(
        SimpleNamespace(
            name=topic.name,
            partitions=tuple(_partition(broker, topic.name, wanted) for wanted in topic.partitions),
        )
        for topic in request.topics
    )
    allow_change = getattr(request, "allow_replication_factor_change", True)
    return _answer(allow_change=allow_change, message=None, topics=topics)


def _partition(broker: ClusterView, name: str, wanted: Request) -> SimpleNamespace:
    error, message = ErrorCode.none, None
    try:
        check_reassignment(broker.image, TopicPartition(name, wanted.partition_index), wanted.replicas)
    except KafkaError as refusal:
        error, message = refusal.code, refusal.message
    return SimpleNamespace(partition_index=wanted.partition_index, error_code=error, error_message=message)


def _answer(
    *, allow_change: bool, message: str | None, topics: tuple[SimpleNamespace, ...]
) -> SimpleNamespace:
    return SimpleNamespace(
        throttle_time=0,
        allow_replication_factor_change=allow_change,
        error_code=ErrorCode.none,
        error_message=message,
        responses=topics,
    )
