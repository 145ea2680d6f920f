"""DeleteRecords (21): let partitions begin at an offset; -1 means the high watermark (KIP-107).

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)

Only the leader takes it. What lies before is gone for its readers at once, and when the answer is sent for good: log
starts are checkpointed before it, and every living replica begins there or later (the low watermark), which followers
hear of with their next fetch. One that does not say so within the request's time makes it REQUEST_TIMED_OUT; it follows
when it can. Kafka's `ReplicaManager.deleteRecords` and `DelayedDeleteRecords`.

Room on the disk is freed by the next look at retention, in whole segments. Topics that are only compacted refuse it.
An answer has the low watermark.
"""

from __future__ import annotations

import asyncio
import logging

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.logs import DeleteRecordsPartitionResult, DeleteRecordsResponse
from moldau.broker.guard import may
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.replication.partition import Partition
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.times import milliseconds

log = logging.getLogger(__name__)

API_KEY = 21
VERSIONS = (0, 2)

DELETE_TOPIC = right("DeleteRecords", Operation.DELETE, Resource.TOPIC)

HIGH_WATERMARK = -1
UNKNOWN = -1
LOOK_AGAIN_S = 0.25
"""A follower that dies does not count any more; nobody is told when that is so."""

Place = tuple[str, int]


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> DeleteRecordsResponse:
    """Of a partition that is named twice, the last offset counts."""
    deadline_s = broker.runtime.clock.monotonic() + milliseconds(request.timeout) / 1000
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    refused: dict[Place, ErrorCode] = {}
    moved: dict[Place, tuple[Partition, int]] = {}
    for (name, index), offset in wanted.items():
        await context.breathe()
        if not may(broker, context, DELETE_TOPIC, name):
            refused[name, index] = DELETE_TOPIC.error
            continue
        try:
            moved[name, index] = _delete_before(broker, name, index, offset)
        except KafkaError as refusal:
            refused[name, index] = refusal.code
        except OSError:
            refused[name, index] = ErrorCode.kafka_storage_error
    if moved:
        await _make_durable(broker)
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for name, index in wanted:
        await context.breathe()
        low_watermark, error = UNKNOWN, refused.get((name, index), ErrorCode.none)
        if not error:
            low_watermark, error = await _until_all_begin_there(broker, *moved[name, index], deadline_s)
        topics.setdefault(name, []).append(DeleteRecordsPartitionResult(index, low_watermark, error))
    return DeleteRecordsResponse(tuple(TopicResult(name, tuple(answers)) for name, answers in topics.items()))


def _delete_before(broker: DataBroker, name: str, index: int, offset: int) -> tuple[Partition, int]:
    """The partition, and where it begins; KafkaError says why not."""
    partition = broker.partition(name, index)
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    if partition.refusal:
        raise KafkaError(partition.refusal)
    if partition.log.config.compact and not partition.log.config.delete:
        raise KafkaError(ErrorCode.policy_violation)
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    partition.delete_records_before(offset)
    return partition, offset


async def _until_all_begin_there(
    broker: DataBroker, partition: Partition, offset: int, deadline_s: float
) -> tuple[int, ErrorCode]:
    """The low watermark, once it has come to an offset or there is no time left."""
    clock, tasks = broker.runtime.clock, broker.runtime.tasks
    while True:
        low_watermark = partition.low_watermark(broker.image.brokers.__contains__)
        if low_watermark is None:
            return UNKNOWN, partition.refusal
        if low_watermark >= offset:
            return low_watermark, ErrorCode.none
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            return low_watermark, ErrorCode.request_timed_out
        moved = partition.starts_moved
        timer = tasks.call_later(min(left_s, LOOK_AGAIN_S), partition.tell_starts)
        await asyncio.shield(moved)
        timer.cancel()


async def _make_durable(broker: DataBroker) -> None:
    try:
        await broker.log_manager.write_checkpoints()
    except OSError as error:
        # The records are gone for readers; a crash before the next attempt brings them back.
        log.warning("log starts could not be written: %s", error)
