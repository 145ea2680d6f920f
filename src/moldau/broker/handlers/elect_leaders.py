"""ElectLeaders (43): why a partition keeps the leader that it has (`controller.leaders`): this broker is alone.

Without a list every topic is named, with those of its partitions that would need an election.

- v0: only the preferred leader. v1: KIP-460, the request says which election, and the answer has an error of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.answers.topics import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.controller.leaders import Election, why_not_elected

API_KEY = 43
VERSIONS = (0, 2)


def handle(broker: AdminBroker, context: RequestContext, request: Request) -> ElectLeadersResponse:
    wanted = getattr(request, "election_type", Election.PREFERRED)
    asked = request.topic_partitions
    if wanted not in iter(Election) and (asked is None or asked):
        unknown = KafkaError(ErrorCode.invalid_request, f"Unknown election type {wanted}")
        refused = [
            _topic(topic.topic, [(index, unknown) for index in topic.partitions]) for topic in asked or ()
        ]
        return ElectLeadersResponse(ErrorCode.invalid_request, tuple(refused))

    def outcomes(name: str, indexes: Iterable[int]) -> list[tuple[int, KafkaError]]:
        election, offline = Election(wanted), broker.offline
        return [
            (index, why_not_elected(broker.image, TopicPartition(name, index), election, offline))
            for index in indexes
        ]

    if asked is not None:
        results = [_topic(topic.topic, outcomes(topic.topic, topic.partitions)) for topic in asked]
    else:
        results = [
            _topic(name, filter(_is_needed, outcomes(name, range(len(topic.partitions)))))
            for name, topic in sorted(broker.image.topics.items())
        ]
    return ElectLeadersResponse(ErrorCode.none, tuple(results))


def _is_needed(outcome: tuple[int, KafkaError]) -> bool:
    return outcome[1].code is not ErrorCode.election_not_needed


def _topic(name: str, outcomes: Iterable[tuple[int, KafkaError]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        name, tuple(PartitionResult(index, error.code, error.message) for index, error in outcomes)
    )
