"""ListPartitionReassignments (46): what moves now; `controller.reassignments` knows.

- v0: KIP-455
"""

from __future__ import annotations

from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.topics import ListPartitionReassignmentsResponse, OngoingPartitionReassignment
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 46
VERSIONS = (0, 0)

DESCRIBE_CLUSTER = right("ListPartitionReassignments", Operation.DESCRIBE, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """The controller knows first."""
    return True


def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> ListPartitionReassignmentsResponse:
    if not may(broker, context, DESCRIBE_CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=DESCRIBE_CLUSTER.error)
    wanted = None
    if request.topics is not None:
        wanted = {topic.name: tuple(topic.partition_indexes) for topic in request.topics}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for place, replicas, adding, removing in broker.controller.list_reassignments(wanted):
        shown = OngoingPartitionReassignment(place.partition, replicas, adding, removing)
        topics.setdefault(place.topic, []).append(shown)
    return ListPartitionReassignmentsResponse(
        tuple(TopicResult(name, tuple(partitions)) for name, partitions in topics.items())
    )
