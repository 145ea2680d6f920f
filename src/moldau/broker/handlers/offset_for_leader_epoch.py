"""OffsetForLeaderEpoch (23): where an epoch ended (KIP-101, KIP-279, KIP-320).

- v2: KIP-320, the leader epoch that the client knows
- v3: KIP-320, the replica that asks
- v4: flexible encoding (KIP-482)

Consumers and followers find with it whether what they hold has been truncated away.
"""

from __future__ import annotations

from functools import partial

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.logs import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.broker.paced import in_slices
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 23
VERSIONS = (2, 4)

FOLLOW = right("OffsetForLeaderEpoch", Operation.CLUSTER_ACTION, Resource.CLUSTER)
DESCRIBE_TOPIC = right("OffsetForLeaderEpoch", Operation.DESCRIBE, Resource.TOPIC)

NO_EPOCH = -1


def handle(
    broker: DataBroker, context: RequestContext, request: Request
) -> Slices[OffsetForLeaderEpochResponse]:
    topics = []
    asks = broker.guard is not None and not may_quietly(broker, context, FOLLOW)
    for topic in request.topics:
        if asks and not may(broker, context, DESCRIBE_TOPIC, topic.topic):
            denied = yield from in_slices(_denied, topic.partitions)
            topics.append(OffsetForLeaderTopicResult(topic.topic, tuple(denied)))
            yield
            continue
        found = yield from in_slices(partial(_find, broker, topic.topic), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic.topic, tuple(found)))
        yield
    return OffsetForLeaderEpochResponse(tuple(topics))


def _denied(wanted: Request) -> EpochEndOffset:
    return EpochEndOffset(wanted.partition, DESCRIBE_TOPIC.error)


def _find(broker: DataBroker, topic: str, wanted: Request) -> EpochEndOffset:
    try:
        partition = broker.partition(topic, wanted.partition)
    except KafkaError as error:
        return EpochEndOffset(wanted.partition, error.code)
    error_code = partition.check_readable(getattr(wanted, "current_leader_epoch", NO_EPOCH))
    if error_code:
        return EpochEndOffset(wanted.partition, error_code)
    if wanted.leader_epoch == partition.leader_epoch:
        return EpochEndOffset(
            wanted.partition, ErrorCode.none, wanted.leader_epoch, partition.log.next_offset
        )
    epoch, next_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(wanted.partition, ErrorCode.none, epoch, next_offset)
