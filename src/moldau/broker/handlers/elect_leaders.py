"""ElectLeaders (43): the preferred leaders again, or any leader at all (KIP-460); `controller.leaders` decides.

- v0: only the preferred leader
- v1: KIP-460, the request says which election, and the answer has an error of its own
- v2: flexible encoding (KIP-482)

Without a list every topic is named, with those of its partitions that would need an election.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.answers.topics import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.leaders import Elected, Election
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 43
VERSIONS = (0, 2)

ALTER_CLUSTER = right("ElectLeaders", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> ElectLeadersResponse:
    wanted = getattr(request, "election_type", Election.PREFERRED)
    asked = request.topic_partitions
    if not may(broker, context, ALTER_CLUSTER):
        error, message = ALTER_CLUSTER.error, None
        denied = await paced(context, lambda topic: _refused(topic, error, message), asked or ())
        return ElectLeadersResponse(error, tuple(denied))
    if wanted not in iter(Election) and (asked is None or asked):
        message = f"Unknown election type {wanted}"
        refused = [_refused(topic, ErrorCode.invalid_request, message) for topic in asked or ()]
        return ElectLeadersResponse(ErrorCode.invalid_request, tuple(refused))
    controller = broker.controller
    if asked is None:
        found: dict[str, list[Elected]] = {name: [] for name in sorted(controller.image.topics)}
        for outcome in await controller.elect_leaders(Election(wanted), None):
            found.setdefault(outcome.place.topic, []).append(outcome)
        return ElectLeadersResponse(ErrorCode.none, tuple(_topic(*item) for item in found.items()))
    named = ((topic.topic, index) for topic in asked for index in topic.partitions)
    places = await paced(context, TopicPartition._make, named)
    outcomes = iter(await controller.elect_leaders(Election(wanted), places) if places else ())
    results = []
    for topic in asked:
        shown = await paced(context, lambda _: _partition(next(outcomes)), topic.partitions)
        results.append(ReplicaElectionResult(topic.topic, tuple(shown)))
    return ElectLeadersResponse(ErrorCode.none, tuple(results))


def _refused(topic: Request, error: ErrorCode, message: str | None) -> ReplicaElectionResult:
    places = (TopicPartition(topic.topic, index) for index in topic.partitions)
    return _topic(topic.topic, [Elected(place, error, message) for place in places])


def _topic(name: str, outcomes: Sequence[Elected]) -> ReplicaElectionResult:
    return ReplicaElectionResult(name, tuple(map(_partition, outcomes)))


def _partition(outcome: Elected) -> PartitionResult:
    place, error, message = outcome
    return PartitionResult(place.partition, error, message)
