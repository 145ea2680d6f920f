"""Metadata and DescribeTopicPartitions, which share what they show of topics; DescribeCluster and ApiVersions."""

from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED


class PartitionShown(NamedTuple):
    """MetadataResponsePartition, and with the eligible replicas DescribeTopicPartitionsResponsePartition."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class TopicShown(NamedTuple):
    """MetadataResponseTopic and DescribeTopicPartitionsResponseTopic."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionShown, ...] = ()
    topic_authorized_operations: int = OPERATIONS_UNASKED


class MetadataResponseBroker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponse(NamedTuple):
    topics: tuple[TopicShown, ...]
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    cluster_authorized_operations: int = OPERATIONS_UNASKED
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


class Cursor(NamedTuple):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(NamedTuple):
    topics: tuple[TopicShown, ...]
    next_cursor: Cursor | None = None
    throttle_time: int = 0


class DescribeClusterBroker(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterResponse(NamedTuple):
    endpoint_type: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int = OPERATIONS_UNASKED
    throttle_time: int = 0


class ApiVersion(NamedTuple):
    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(NamedTuple):
    name: str
    min_version: int
    max_version: int


class FinalizedFeatureKey(NamedTuple):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(NamedTuple):
    error_code: ErrorCode
    api_keys: tuple[ApiVersion, ...]
    supported_features: tuple[SupportedFeatureKey, ...]
    finalized_features_epoch: int
    finalized_features: tuple[FinalizedFeatureKey, ...]
    zk_migration_ready: bool = False
    throttle_time: int = 0
