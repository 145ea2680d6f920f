"""DeleteRecords (21): let partitions begin at an offset; -1 means the high watermark (KIP-107).

What lies before is gone for readers at once and, when the answer is sent, for good: log starts are checkpointed
before it. Room on the disk is freed by the next look at retention, in whole segments. Topics that are only compacted
refuse it. An answer has the partition's first offset from now on.
"""

from __future__ import annotations

import logging

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.logs import DeleteRecordsPartitionResult, DeleteRecordsResponse
from moldau.broker.interface import DataBroker, Request, RequestContext

log = logging.getLogger(__name__)

API_KEY = 21
VERSIONS = (0, 2)

HIGH_WATERMARK = -1
UNKNOWN = -1


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> DeleteRecordsResponse:
    """Of a partition that is named twice, the last offset counts."""
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    moved = False
    for (name, index), offset in wanted.items():
        low_watermark, error = UNKNOWN, ErrorCode.none
        try:
            low_watermark = _delete_before(broker, name, index, offset)
            moved = True
        except KafkaError as refusal:
            error = refusal.code
        answer = DeleteRecordsPartitionResult(index, low_watermark, error)
        topics.setdefault(name, []).append(answer)
    if moved:
        await _make_durable(broker)
    return DeleteRecordsResponse(tuple(TopicResult(name, tuple(answers)) for name, answers in topics.items()))


def _delete_before(broker: DataBroker, name: str, index: int, offset: int) -> int:
    """The partition's first offset afterwards; KafkaError says why not."""
    partition = broker.partition(name, index)
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    if partition.refusal:
        raise KafkaError(partition.refusal)
    if partition.log.config.compact and not partition.log.config.delete:
        raise KafkaError(ErrorCode.policy_violation)
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.offset_out_of_range)
    partition.log.delete_records_before(offset)
    return partition.log.log_start_offset


async def _make_durable(broker: DataBroker) -> None:
    try:
        await broker.log_manager.write_checkpoints()
    except OSError as error:
        # The records are gone for readers; a crash before the next attempt brings them back.
        log.warning("log starts could not be written: %s", error)
