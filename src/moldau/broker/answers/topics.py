"""Creating and deleting topics, adding partitions; where partitions are and are to be (log dirs, elections, moves)."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import TopicResult
from moldau.config.describe import ConfigEntry


class CreatableTopicResult(NamedTuple):
    name: str
    topic_id: UUID | None
    error_code: ErrorCode
    error_message: str | None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[ConfigEntry] = ()
    topic_config_error_code: ErrorCode = ErrorCode.none


class CreateTopicsResponse(NamedTuple):
    topics: tuple[CreatableTopicResult, ...]
    throttle_time: int = 0


class DeletableTopicResult(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error_code: ErrorCode
    error_message: str | None


class DeleteTopicsResponse(NamedTuple):
    responses: tuple[DeletableTopicResult, ...]
    throttle_time: int = 0


class CreatePartitionsTopicResult(NamedTuple):
    name: str
    error_code: ErrorCode
    error_message: str | None


class CreatePartitionsResponse(NamedTuple):
    results: tuple[CreatePartitionsTopicResult, ...]
    throttle_time: int = 0


class DescribeLogDirsPartition(NamedTuple):
    partition_index: int
    partition_size: int
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsResult(NamedTuple):
    error_code: ErrorCode
    log_dir: str
    topics: tuple[TopicResult[DescribeLogDirsPartition], ...]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False


class DescribeLogDirsResponse(NamedTuple):
    results: tuple[DescribeLogDirsResult, ...]
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


class AlterReplicaLogDirPartitionResult(NamedTuple):
    partition_index: int
    error_code: ErrorCode


class AlterReplicaLogDirTopicResult(NamedTuple):
    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


class AlterReplicaLogDirsResponse(NamedTuple):
    results: tuple[AlterReplicaLogDirTopicResult, ...]
    throttle_time: int = 0


class PartitionResult(NamedTuple):
    partition_id: int
    error_code: ErrorCode
    error_message: str | None


class ReplicaElectionResult(NamedTuple):
    topic: str
    partition_result: tuple[PartitionResult, ...]


class ElectLeadersResponse(NamedTuple):
    error_code: ErrorCode
    replica_election_results: tuple[ReplicaElectionResult, ...]
    throttle_time: int = 0


class ReassignablePartitionResponse(NamedTuple):
    partition_index: int
    error_code: ErrorCode
    error_message: str | None


class AlterPartitionReassignmentsResponse(NamedTuple):
    responses: tuple[TopicResult[ReassignablePartitionResponse], ...]
    error_message: str | None
    allow_replication_factor_change: bool = True
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


class OngoingPartitionReassignment(NamedTuple):
    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ListPartitionReassignmentsResponse(NamedTuple):
    topics: tuple[TopicResult[OngoingPartitionReassignment], ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0
