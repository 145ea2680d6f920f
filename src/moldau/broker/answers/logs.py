"""What is in partitions' logs: offsets by time and epoch, producers, records that are deleted."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import TopicResult

UNKNOWN = -1


class PartitionOffset(NamedTuple):
    """ListOffsetsPartitionResponse."""

    partition_index: int
    error_code: ErrorCode
    offset: int = UNKNOWN
    timestamp: int = UNKNOWN
    leader_epoch: int = UNKNOWN


class ListOffsetsResponse(NamedTuple):
    topics: tuple[TopicResult[PartitionOffset], ...]
    throttle_time: int = 0


class EpochEndOffset(NamedTuple):
    partition: int
    error_code: ErrorCode
    leader_epoch: int = UNKNOWN
    end_offset: int = UNKNOWN


class OffsetForLeaderTopicResult(NamedTuple):
    topic: str
    partitions: tuple[EpochEndOffset, ...]


class OffsetForLeaderEpochResponse(NamedTuple):
    topics: tuple[OffsetForLeaderTopicResult, ...]
    throttle_time: int = 0


class DeleteRecordsPartitionResult(NamedTuple):
    partition_index: int
    low_watermark: int
    error_code: ErrorCode


class DeleteRecordsResponse(NamedTuple):
    topics: tuple[TopicResult[DeleteRecordsPartitionResult], ...]
    throttle_time: int = 0


class ProducerState(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class PartitionProducers(NamedTuple):
    """PartitionResponse of DescribeProducers."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None
    active_producers: tuple[ProducerState, ...] = ()


class DescribeProducersResponse(NamedTuple):
    topics: tuple[TopicResult[PartitionProducers], ...]
    throttle_time: int = 0
