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
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.leaders import Elected, Election

API_KEY = 43
VERSIONS = (0, 2)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> ElectLeadersResponse:
    wanted = getattr(request, "election_type", Election.PREFERRED)
    asked = request.topic_partitions
    if wanted not in iter(Election) and (asked is None or asked):
        message = f"Unknown election type {wanted}"
        refused = [
            _topic(
                topic.topic,
                [
                    Elected(TopicPartition(topic.topic, index), ErrorCode.invalid_request, message)
                    for index in topic.partitions
                ],
            )
            for topic in asked or ()
        ]
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


def _topic(name: str, outcomes: Sequence[Elected]) -> ReplicaElectionResult:
    return ReplicaElectionResult(name, tuple(map(_partition, outcomes)))


def _partition(outcome: Elected) -> PartitionResult:
    place, error, message = outcome
    return PartitionResult(place.partition, error, message)
