"""Producers' ids and transactions; see also `coordinator.transaction.messages`."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import PartitionError, TopicResult


class ProducerIdentity(NamedTuple):
    """InitProducerIdResponse (up to version 5) and EndTxnResponse: who the producer is from now on."""

    error_code: ErrorCode
    producer_id: int
    producer_epoch: int
    throttle_time: int = 0


class AddOffsetsToTxnResponse(NamedTuple):
    error_code: ErrorCode
    throttle_time: int = 0


class AddPartitionsToTxnPartitionResult(NamedTuple):
    partition_index: int
    partition_error_code: ErrorCode


class AddPartitionsToTxnTopicResult(NamedTuple):
    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


class AddPartitionsToTxnResult(NamedTuple):
    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


class AddPartitionsToTxnResponse(NamedTuple):
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...]
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...]
    error_code: ErrorCode = ErrorCode.none
    throttle_time: int = 0


class TxnOffsetCommitResponse(NamedTuple):
    topics: tuple[TopicResult[PartitionError], ...]
    throttle_time: int = 0


class WritableTxnMarkerResult(NamedTuple):
    producer_id: int
    topics: tuple[TopicResult[PartitionError], ...]


class WriteTxnMarkersResponse(NamedTuple):
    markers: tuple[WritableTxnMarkerResult, ...]


class TopicData(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class TransactionState(NamedTuple):
    """Of DescribeTransactions. Times are milliseconds."""

    error_code: ErrorCode
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout: int = 0
    transaction_start_time: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[TopicData, ...] = ()


class DescribeTransactionsResponse(NamedTuple):
    transaction_states: tuple[TransactionState, ...]
    throttle_time: int = 0


class ListedTransaction(NamedTuple):
    """TransactionState of ListTransactions."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(NamedTuple):
    error_code: ErrorCode
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
    throttle_time: int = 0
