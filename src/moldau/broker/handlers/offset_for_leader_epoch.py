"""OffsetForLeaderEpoch (23): where an epoch ended (KIP-101, KIP-279, KIP-320).

Consumers and followers find with it whether what they hold has been truncated away.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.interface import DataBroker, Request, RequestContext

API_KEY = 23
VERSIONS = (2, 4)

UNKNOWN = -1


def handle(broker: DataBroker, context: RequestContext, request: Request) -> object:
    return SimpleNamespace(
        throttle_time=0,
        topics=tuple(
            SimpleNamespace(
                topic=topic.topic,
                partitions=tuple(_find(broker, topic.topic, wanted) for wanted in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _find(broker: DataBroker, topic: str, wanted: Request) -> object:
    try:
        partition = broker.partition(topic, wanted.partition)
    except KafkaError as error:
        return _answer(wanted.partition, error.code)
    error_code = partition.check_readable(getattr(wanted, "current_leader_epoch", UNKNOWN))
    if error_code:
        return _answer(wanted.partition, error_code)
    if wanted.leader_epoch == partition.leader_epoch:
        return _answer(wanted.partition, ErrorCode.none, wanted.leader_epoch, partition.log.next_offset)
    epoch, next_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return _answer(wanted.partition, ErrorCode.none, epoch, next_offset)


def _answer(index: int, error: ErrorCode, leader_epoch: int = UNKNOWN, next_offset: int = UNKNOWN) -> object:
    return SimpleNamespace(
        error_code=error, partition=index, leader_epoch=leader_epoch, end_offset=next_offset
    )
