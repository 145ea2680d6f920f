"""What is asked of the transaction coordinator, and what it answers, apart from any version of the wire."""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction


class Init(NamedTuple):
    """InitProducerId. A producer that goes on after an error says who it was (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected_id: int = NO_PRODUCER_ID
    expected_epoch: int = NO_EPOCH


class Add(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn, or a broker on behalf of a producer (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    version: int = 0


class End(NamedTuple):
    """EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    version: int = 0


class Identity(NamedTuple):
    """The answer to InitProducerId and EndTxn: who the producer is from now on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class NeedsProducerId(NamedTuple):
    """Not an answer for clients: ask again with a new producer id, which only the cluster's store can give."""


class Markers(NamedTuple):
    """An effect: markers that are to be written to all partitions of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


class TimedOut(NamedTuple):
    """An effect: a transaction is to be aborted for its time is up, which takes a new producer id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Described(NamedTuple):
    transactional_id: str
    transaction: Transaction
