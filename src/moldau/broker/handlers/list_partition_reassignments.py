"""ListPartitionReassignments (46): nothing moves where a broker is alone (`controller.reassignments`)."""

from __future__ import annotations

from moldau.broker.answers.topics import ListPartitionReassignmentsResponse
from moldau.broker.interface import ClusterView, Request, RequestContext

API_KEY = 46
VERSIONS = (0, 0)


def handle(
    broker: ClusterView, context: RequestContext, request: Request
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
