"""The structs that several responses share."""

from typing import Generic, NamedTuple, TypeVar

from moldau.base.errors import ErrorCode

OPERATIONS_UNASKED = -(1 << 31)
"""Where the client did not ask which operations it may do."""

P = TypeVar("P")


class TopicResult(NamedTuple, Generic[P]):
    """The partitions of a topic, in most of the responses that name it `name`."""

    name: str
    partitions: tuple[P, ...]


class PartitionError(NamedTuple):
    """OffsetCommit, TxnOffsetCommit, OffsetDelete and WriteTxnMarkers say no more of a partition."""

    partition_index: int
    error_code: ErrorCode
