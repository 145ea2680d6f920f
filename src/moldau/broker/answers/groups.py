"""Groups and their offsets, and who coordinates them; see also `coordinator.group.messages`."""

from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED, PartitionError, TopicResult
from moldau.coordinator.group.consumer.messages import DescribedMember as DescribedConsumer
from moldau.coordinator.group.messages import DescribedMember, Listed


class Coordinator(NamedTuple):
    key: str
    error_code: ErrorCode
    error_message: str | None
    node_id: int = -1
    host: str = ""
    port: int = -1


class FindCoordinatorResponse(NamedTuple):
    """The single coordinator of versions 0 to 3 stands beside the list of the later ones."""

    coordinators: tuple[Coordinator, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1
    throttle_time: int = 0


class DescribedGroup(NamedTuple):
    """Of DescribeGroups. The first fields are those of the coordinator's `Described`."""

    group_id: str
    group_state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    authorized_operations: int = OPERATIONS_UNASKED


class DescribeGroupsResponse(NamedTuple):
    groups: tuple[DescribedGroup, ...]
    throttle_time: int = 0


class DescribedConsumerGroup(NamedTuple):
    """DescribedGroup of ConsumerGroupDescribe. The first fields are those of the coordinator's."""

    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    authorized_operations: int = OPERATIONS_UNASKED


class ConsumerGroupDescribeResponse(NamedTuple):
    groups: tuple[DescribedConsumerGroup, ...]
    throttle_time: int = 0


class ListGroupsResponse(NamedTuple):
    error_code: ErrorCode
    groups: tuple[Listed, ...] = ()
    throttle_time: int = 0


class DeletableGroupResult(NamedTuple):
    group_id: str
    error_code: ErrorCode


class DeleteGroupsResponse(NamedTuple):
    results: tuple[DeletableGroupResult, ...]
    throttle_time: int = 0


class OffsetCommitResponseTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: list[PartitionError]


class OffsetCommitResponse(NamedTuple):
    topics: tuple[OffsetCommitResponseTopic, ...]
    throttle_time: int = 0


class OffsetFetchResponsePartition(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: ErrorCode


class OffsetFetchResponseTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponseGroup(NamedTuple):
    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: ErrorCode


class OffsetFetchResponse(NamedTuple):
    """The single group of versions 1 to 7 stands beside the list of the later ones."""

    groups: tuple[OffsetFetchResponseGroup, ...] = ()
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


class OffsetDeleteResponse(NamedTuple):
    error_code: ErrorCode
    topics: tuple[TopicResult[PartitionError], ...] = ()
    throttle_time: int = 0
