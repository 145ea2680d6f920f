"""AlterPartitionReassignments (45): partitions to other brokers (KIP-455); `controller.reassignments` decides.

- v0: KIP-455
- v1: KIP-860, the request says whether the number of replicas may change
"""

from __future__ import annotations

from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.topics import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
)
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.reassignments import Reassigned, Reassignment
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 45
VERSIONS = (0, 1)

ALTER_CLUSTER = right("AlterPartitionReassignments", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> AlterPartitionReassignmentsResponse:
    if not may(broker, context, ALTER_CLUSTER):
        denied = await paced(context, _denied, request.topics)
        return AlterPartitionReassignmentsResponse(tuple(denied), None, error_code=ALTER_CLUSTER.error)
    if not request.topics:  # QuorumController's answer is then its message's defaults
        return AlterPartitionReassignmentsResponse((), "")
    named = ((topic.name, partition) for topic in request.topics for partition in topic.partitions)
    wanted = await paced(context, _reassignment, named)
    allow_change = getattr(request, "allow_replication_factor_change", True)
    outcomes = iter(await broker.controller.alter_reassignments(wanted, may_change_factor=allow_change))
    topics = tuple(
        TopicResult(
            topic.name,
            tuple(_answer(outcome) for _, outcome in zip(topic.partitions, outcomes, strict=False)),
        )
        for topic in request.topics
    )
    return AlterPartitionReassignmentsResponse(topics, None, allow_change)


def _denied(topic: Request) -> TopicResult[ReassignablePartitionResponse]:
    error = ALTER_CLUSTER.error
    return TopicResult(
        topic.name,
        tuple(ReassignablePartitionResponse(one.partition_index, error, None) for one in topic.partitions),
    )


def _reassignment(named: tuple[str, Request]) -> Reassignment:
    topic, partition = named
    replicas = None if partition.replicas is None else tuple(partition.replicas)
    return Reassignment(TopicPartition(topic, partition.partition_index), replicas)


def _answer(outcome: Reassigned) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(outcome.place.partition, outcome.error, outcome.message)
