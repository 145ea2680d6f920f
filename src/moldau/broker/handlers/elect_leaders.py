"""ElectLeaders (43): why a partition keeps the leader that it has (`controller.leaders`): this broker is alone.

Without a list every topic is named, with those of its partitions that would need an election. Version 0 knows
only the preferred leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.controller.leaders import Election, why_not_elected

API_KEY = 43
VERSIONS = (0, 2)


def handle(broker: AdminBroker, context: RequestContext, request: Request) -> object:
    wanted = getattr(request, "election_type", Election.PREFERRED)
    asked = request.topic_partitions
    if wanted not in iter(Election) and (asked is None or asked):
        unknown = KafkaError(ErrorCode.invalid_request, f"Unknown election type {wanted}")
        refused = [
            _topic(topic.topic, [(index, unknown) for index in topic.partitions]) for topic in asked or ()
        ]
        return _answer(ErrorCode.invalid_request, refused)

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
    return _answer(ErrorCode.none, results)


def _is_needed(outcome: tuple[int, KafkaError]) -> bool:
    return outcome[1].code is not ErrorCode.election_not_needed


def _topic(name: str, outcomes: Iterable[tuple[int, KafkaError]]) -> SimpleNamespace:
    return SimpleNamespace(
        topic=name,
        partition_result=tuple(
            SimpleNamespace(partition_id=index, error_code=error.code, error_message=error.message)
            for index, error in outcomes
        ),
    )


def _answer(error: ErrorCode, results: list[SimpleNamespace]) -> SimpleNamespace:
    return SimpleNamespace(throttle_time=0, error_code=error, replica_election_results=tuple(results))
