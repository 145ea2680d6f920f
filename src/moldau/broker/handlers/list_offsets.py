"""ListOffsets (2): offsets by position in the log (earliest, latest) or by time.

- v1: KIP-79, one offset, with its timestamp
- v2: KIP-98, the isolation level
- v3: the client waits where it is throttled (KIP-219)
- v4: KIP-320, leader epochs
- v5: KIP-207, OFFSET_NOT_AVAILABLE; LEADER_NOT_AVAILABLE before
- v6: flexible encoding (KIP-482)
- v7: KIP-734, -3: the record with the largest timestamp
- v8: KIP-405, -4: the earliest on this broker's disk
- v9: KIP-1005, -5: the latest in tiered storage
- v10: KIP-1075, a time-out for tiered storage, not looked at
- v11: KIP-1023, -6: the earliest that is not yet tiered

Special timestamps: -1 latest, -2 earliest, and those of the versions below. There is no tiered storage: -4 is -2, and
-5 and -6 find nothing. What lies at or above the high watermark (with read_committed: the last stable offset) is not
found. Consumers are not told the end of a log before its new leader knows how far it is committed: an offset below one
that they have seen would look like lost records (KIP-207). Brokers (a replica id) are told the end of the log itself.
"""

from __future__ import annotations

import logging

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.logs import ListOffsetsResponse, PartitionOffset
from moldau.broker.guard import may
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.replication.partition import NO_EPOCH, Partition
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

logger = logging.getLogger(__name__)

API_KEY = 2
VERSIONS = (1, 11)

DESCRIBE_TOPIC = right("ListOffsets", Operation.DESCRIBE, Resource.TOPIC)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
CONSUMER, DEBUGGER = -1, -2
"""Replica ids of those who are no brokers. A debugger (replica-verification) may ask a follower."""
NOT_AVAILABLE_SINCE_VERSION = 5


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> ListOffsetsResponse:
    """An answer for each partition asked for; one that is asked for twice gets none but INVALID_REQUEST."""
    topics: dict[str, dict[int, PartitionOffset]] = {}
    for topic in request.topics:
        await context.breathe()
        is_allowed = may(broker, context, DESCRIBE_TOPIC, topic.name)
        for wanted in topic.partitions:
            await context.breathe()
            index = wanted.partition_index
            answers = topics.setdefault(topic.name, {})
            if not is_allowed:
                answers[index] = PartitionOffset(index, DESCRIBE_TOPIC.error)
                continue
            if index in answers:
                answers[index] = PartitionOffset(index, ErrorCode.invalid_request)
                continue
            try:
                answers[index] = await _find(broker, context, request, (topic.name, index), wanted)
            except KafkaError as error:
                answers[index] = PartitionOffset(index, error.code)
            except OSError as error:
                logger.error("cannot search %s-%d: %s", topic.name, index, error)
                answers[index] = PartitionOffset(index, ErrorCode.kafka_storage_error)
    await context.breathe()
    return ListOffsetsResponse(
        tuple(TopicResult(name, tuple(answers.values())) for name, answers in topics.items())
    )


async def _find(
    broker: DataBroker, context: RequestContext, request: Request, key: tuple[str, int], wanted: Request
) -> PartitionOffset:
    index = wanted.partition_index
    timestamp: int = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or SINCE_VERSION.get(timestamp, 0) > context.version:
        return PartitionOffset(index, ErrorCode.unsupported_version)
    partition = broker.partition(*key)
    claimed_epoch = getattr(wanted, "current_leader_epoch", NO_EPOCH)
    if request.replica_id == DEBUGGER:
        error = partition.check_held(claimed_epoch)
    else:
        error = partition.check_readable(claimed_epoch)
    if error:
        return PartitionOffset(index, error)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return PartitionOffset(index, ErrorCode.none)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log.log_start_offset
        epoch = partition.log.epochs.epoch_of(start)
        return PartitionOffset(index, ErrorCode.none, start, leader_epoch=epoch)
    if timestamp == LATEST:
        if _is_end_unknown(partition, request):
            return _not_available(context, index)
        readable = _readable(partition, request)
        return PartitionOffset(index, ErrorCode.none, readable, leader_epoch=partition.leader_epoch)
    log = partition.log
    found = await (log.find_max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp))
    if found is None or found.offset >= _readable(partition, request):
        if _is_end_unknown(partition, request):
            return _not_available(context, index)
        return PartitionOffset(index, ErrorCode.none)
    return PartitionOffset(index, ErrorCode.none, found.offset, found.timestamp, found.leader_epoch)


def _readable(partition: Partition, request: Request) -> int:
    """Up to where the one who asks may read."""
    if request.replica_id != CONSUMER:
        return partition.log.next_offset
    is_committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
    return partition.last_stable_offset if is_committed_only else partition.high_watermark


def _is_end_unknown(partition: Partition, request: Request) -> bool:
    """Whether earlier leaders may have committed more than this one knows of."""
    leader = partition.leader
    return request.replica_id == CONSUMER and leader is not None and not leader.knows_the_end


def _not_available(context: RequestContext, index: int) -> PartitionOffset:
    if context.version < NOT_AVAILABLE_SINCE_VERSION:
        return PartitionOffset(index, ErrorCode.leader_not_available)
    return PartitionOffset(index, ErrorCode.offset_not_available)
