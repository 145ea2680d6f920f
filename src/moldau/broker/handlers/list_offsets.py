"""ListOffsets (2): offsets by position in the log (earliest, latest) or by time.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp (v7), -4 earliest on this broker's
disk (v8), -5 latest in tiered storage (v9), -6 earliest not yet tiered (v11). There is no tiered storage: -4 is -2, and
-5 and -6 find nothing. What lies at or above the high watermark (with read_committed: the last stable offset) is not
found.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.replication.partition import Partition

log = logging.getLogger(__name__)

API_KEY = 2
VERSIONS = (1, 11)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
UNKNOWN = -1


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> object:
    """An answer for each partition asked for; one that is asked for twice gets none but INVALID_REQUEST."""
    topics: dict[str, dict[int, object]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            index = wanted.partition_index
            answers = topics.setdefault(topic.name, {})
            if index in answers:
                answers[index] = _answer(index, ErrorCode.invalid_request)
                continue
            try:
                answers[index] = await _find(broker, context, request, (topic.name, index), wanted)
            except KafkaError as error:
                answers[index] = _answer(index, error.code)
            except OSError as error:
                log.error("cannot search %s-%d: %s", topic.name, index, error)
                answers[index] = _answer(index, ErrorCode.kafka_storage_error)
    return SimpleNamespace(
        throttle_time=0,
        topics=tuple(
            SimpleNamespace(name=name, partitions=tuple(answers.values())) for name, answers in topics.items()
        ),
    )


async def _find(
    broker: DataBroker, context: RequestContext, request: Request, key: tuple[str, int], wanted: Request
) -> object:
    index = wanted.partition_index
    timestamp: int = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or SINCE_VERSION.get(timestamp, 0) > context.version:
        return _answer(index, ErrorCode.unsupported_version)
    partition: Partition = broker.partition(*key)
    error = partition.check_readable(getattr(wanted, "current_leader_epoch", -1))
    if error:
        return _answer(index, error)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _answer(index, ErrorCode.none)
    is_committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
    readable = partition.last_stable_offset if is_committed_only else partition.high_watermark
    if timestamp == LATEST:
        return _answer(index, ErrorCode.none, readable, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log.log_start_offset
        return _answer(index, ErrorCode.none, start, leader_epoch=partition.log.epochs.epoch_of(start))
    held = partition.log
    found = await (
        held.find_max_timestamp() if timestamp == MAX_TIMESTAMP else held.find_timestamp(timestamp)
    )
    if found is None or found.offset >= readable:
        return _answer(index, ErrorCode.none)
    return _answer(index, ErrorCode.none, found.offset, found.timestamp, found.leader_epoch)


def _answer(
    index: int, error: ErrorCode, offset: int = UNKNOWN, timestamp: int = UNKNOWN, leader_epoch: int = UNKNOWN
) -> object:
    return SimpleNamespace(
        partition_index=index, error_code=error, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )
