"""AlterPartitionReassignments (45): partitions to other brokers. There are none: `controller.reassignments` decides.

- v1: KIP-860, the request says whether the number of replicas may change.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.topics import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
)
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.controller.reassignments import check_reassignment

API_KEY = 45
VERSIONS = (0, 1)


def handle(
    broker: ClusterView, context: RequestContext, request: Request
) -> AlterPartitionReassignmentsResponse:
    if not request.topics:  # QuorumController's answer is then its message's defaults
        return AlterPartitionReassignmentsResponse((), "")
    topics = tuple(
        TopicResult(topic.name, tuple(_partition(broker, topic.name, wanted) for wanted in topic.partitions))
        for topic in request.topics
    )
    allow_change = getattr(request, "allow_replication_factor_change", True)
    return AlterPartitionReassignmentsResponse(topics, None, allow_change)


def _partition(broker: ClusterView, name: str, wanted: Request) -> ReassignablePartitionResponse:
    error, message = ErrorCode.none, None
    try:
        check_reassignment(broker.image, TopicPartition(name, wanted.partition_index), wanted.replicas)
    except KafkaError as refusal:
        error, message = refusal.code, refusal.message
    return ReassignablePartitionResponse(wanted.partition_index, error, message)
