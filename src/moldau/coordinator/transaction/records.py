"""The records of `__transaction_state`, in Kafka's formats: TransactionLogKey 0 and TransactionLogValue 0 and 1.

A record is a transactional id with the whole state of its transaction, written as version 1; a tombstone takes the id
back. Version 0 is read: Kafka wrote it before version 4.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.coordinator.fields import BadFields, FieldReader, FieldWriter
from moldau.coordinator.transaction.transaction import NO_PRODUCER_ID, State, Transaction

KEY_VERSION = 0
VALUE_VERSION = 1
FLEXIBLE_SINCE = 1
PREVIOUS_PRODUCER_ID, NEXT_PRODUCER_ID, CLIENT_VERSION = 0, 1, 2  # tags
_INT16 = Struct(">h")
_INT64 = Struct(">q")


class TransactionRecorded(NamedTuple):
    transactional_id: str
    transaction: Transaction


class TransactionForgotten(NamedTuple):
    transactional_id: str


TransactionRecord = TransactionRecorded | TransactionForgotten


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = FieldWriter(KEY_VERSION).string(record.transactional_id).done()
    if isinstance(record, TransactionForgotten):
        return key, None
    return key, _value(record.transaction)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for a version that is not known, and for bytes that are no record."""
    try:
        fields = FieldReader(key)
        if fields.int16() != KEY_VERSION:
            return None
        transactional_id = fields.string()
        if value is None:
            return TransactionForgotten(transactional_id)
        transaction = _read_value(FieldReader(value))
    except (BadFields, StructError, ValueError):
        return None
    return None if transaction is None else TransactionRecorded(transactional_id, transaction)


def _value(transaction: Transaction) -> bytes:
    value = FieldWriter(VALUE_VERSION, flexible=True)
    value.int64(transaction.producer_id).int16(transaction.producer_epoch)
    value.int32(transaction.timeout_ms).int8(transaction.state)
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    if transaction.state is State.EMPTY:
        value.array(-1)
    else:
        value.array(len(topics))
    for topic, partitions in topics.items():
        value.string(topic).array(len(partitions))
        for partition in partitions:
            value.int32(partition)
        value.tagged()
    value.int64(transaction.updated_ms).int64(transaction.start_ms)
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[PREVIOUS_PRODUCER_ID] = _INT64.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[NEXT_PRODUCER_ID] = _INT64.pack(transaction.next_producer_id)
    if transaction.version:
        tags[CLIENT_VERSION] = _INT16.pack(transaction.version)
    return value.tagged(tags).done()


def _read_value(fields: FieldReader) -> Transaction | None:
    version = fields.int16()
    if not 0 <= version <= VALUE_VERSION:
        return None
    fields.flexible = version >= FLEXIBLE_SINCE
    producer_id, epoch, timeout_ms, state = fields.int64(), fields.int16(), fields.int32(), fields.int8()
    partitions: list[TopicPartition] = []
    for _ in range(fields.array()):
        topic = fields.string()
        partitions += [TopicPartition(topic, fields.int32()) for _ in range(fields.array())]
        fields.tagged()
    updated_ms, start_ms = fields.int64(), fields.int64()
    tags = fields.tagged()
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        State(state),
        tuple(partitions),
        start_ms,
        updated_ms,
        version=_INT16.unpack(tags[CLIENT_VERSION])[0] if CLIENT_VERSION in tags else 0,
        previous_producer_id=_tagged_id(tags.get(PREVIOUS_PRODUCER_ID)),
        next_producer_id=_tagged_id(tags.get(NEXT_PRODUCER_ID)),
    )


def _tagged_id(data: memoryview | None) -> int:
    return NO_PRODUCER_ID if data is None else int(_INT64.unpack(data)[0])
