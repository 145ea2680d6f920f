"""Reads DescribeTransactions' answer, which kio cannot where a transaction was never begun: its start is -1."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.errors import ErrorCode
from moldau.coordinator.fields import FieldReader


@dataclass(frozen=True, slots=True)
class TopicData:
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransactionState:
    error_code: ErrorCode
    transactional_id: str
    transaction_state: str
    transaction_timeout: int
    transaction_start_time: int
    producer_id: int
    producer_epoch: int
    topics: tuple[TopicData, ...]


@dataclass(frozen=True, slots=True)
class DescribedTransactions:
    throttle_time: int
    transaction_states: tuple[TransactionState, ...]


def decode_described(body: bytes) -> DescribedTransactions:
    fields = FieldReader(body, flexible=True)
    throttle_time = fields.int32()
    states = tuple(_state(fields) for _ in range(fields.array()))
    fields.tagged()
    return DescribedTransactions(throttle_time, states)


def _state(fields: FieldReader) -> TransactionState:
    error, transactional_id, state = ErrorCode(fields.int16()), fields.string(), fields.string()
    timeout_ms, start_ms, producer_id, epoch = fields.int32(), fields.int64(), fields.int64(), fields.int16()
    topics = tuple(_topic(fields) for _ in range(fields.array()))
    fields.tagged()
    return TransactionState(error, transactional_id, state, timeout_ms, start_ms, producer_id, epoch, topics)


def _topic(fields: FieldReader) -> TopicData:
    topic = TopicData(fields.string(), tuple(fields.int32() for _ in range(fields.array())))
    fields.tagged()
    return topic
