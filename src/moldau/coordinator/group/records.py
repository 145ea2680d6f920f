"""The records of `__consumer_offsets`, in Kafka's formats: committed offsets and the state of classic groups.

A key's version is the record's kind: 0 and 1 a committed offset, 2 a classic group. Written are the versions that
Kafka 4.3 writes (OffsetCommitValue 4, or 1 where an old client gave the offset a time to live; GroupMetadataValue 3),
read all that Kafka ever wrote. Kinds 3 and up belong to the newer group protocol: `consumer.records`.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from moldau.coordinator.fields import BadFields, FieldReader, FieldWriter, read_uuid
from moldau.coordinator.group.consumer import records as consumer_records
from moldau.coordinator.group.consumer.records import ConsumerRecord

OFFSET_KEY_VERSIONS = (0, 1)
OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2

OFFSET_VALUE_VERSION_MAX = 4
OFFSET_VALUE_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
GROUP_VALUE_VERSION_MAX = 4
FLEXIBLE_SINCE = 4  # of both values
TOPIC_ID_TAG = 0

NO_EPOCH = -1
NO_TIMESTAMP = -1


class OffsetCommitted(NamedTuple):
    """A group's offset in a partition."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Where the client asked for a retention of its own, as clients did before version 5."""
    topic_id: UUID | None = None


class OffsetForgotten(NamedTuple):
    group_id: str
    topic: str
    partition: int


class MemberRecorded(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupRecorded(NamedTuple):
    """A generation of a classic group: who is in it, and what each member was given."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecorded, ...]


class GroupForgotten(NamedTuple):
    group_id: str


GroupRecord = OffsetCommitted | OffsetForgotten | GroupRecorded | GroupForgotten | ConsumerRecord


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    match record:
        case OffsetCommitted():
            return _offset_key(record), _offset_value(record)
        case OffsetForgotten():
            return _offset_key(record), None
        case GroupRecorded():
            return _group_key(record.group_id), _group_value(record)
        case GroupForgotten():
            return _group_key(record.group_id), None
        case _:
            return consumer_records.encode(record)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a kind or a version that is not known, and for bytes that are no record."""
    try:
        fields = FieldReader(key)
        kind = fields.int16()
        if kind in OFFSET_KEY_VERSIONS:
            group_id, topic, partition = fields.string(), fields.string(), fields.int32()
            if value is None:
                return OffsetForgotten(group_id, topic, partition)
            return _read_offset(group_id, topic, partition, FieldReader(value))
        if kind == GROUP_KEY_VERSION:
            group_id = fields.string()
            return GroupForgotten(group_id) if value is None else _read_group(group_id, FieldReader(value))
        if kind in consumer_records.KEYS:
            return consumer_records.decode(kind, fields, value)
    except BadFields:
        pass
    return None


# ---- offsets ------------------------------------------------------------------------------------------------


def _offset_key(record: OffsetCommitted | OffsetForgotten) -> bytes:
    key = FieldWriter(OFFSET_KEY_VERSION).string(record.group_id).string(record.topic)
    return key.int32(record.partition).done()


def _offset_value(record: OffsetCommitted) -> bytes:
    if record.expire_timestamp_ms != NO_TIMESTAMP:
        old = FieldWriter(OFFSET_VALUE_WITH_EXPIRY).int64(record.offset).string(record.metadata)
        return old.int64(record.commit_timestamp_ms).int64(record.expire_timestamp_ms).done()
    value = FieldWriter(OFFSET_VALUE_VERSION_MAX, flexible=True)
    value.int64(record.offset).int32(record.leader_epoch).string(record.metadata)
    value.int64(record.commit_timestamp_ms)
    return value.tagged({} if record.topic_id is None else {TOPIC_ID_TAG: record.topic_id.bytes}).done()


def _read_offset(group_id: str, topic: str, partition: int, fields: FieldReader) -> OffsetCommitted | None:
    version = fields.int16()
    if not 0 <= version <= OFFSET_VALUE_VERSION_MAX:
        return None
    fields.flexible = version >= FLEXIBLE_SINCE
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else NO_EPOCH
    metadata = fields.string()
    commit_timestamp_ms = fields.int64()
    expire_timestamp_ms = fields.int64() if version == OFFSET_VALUE_WITH_EXPIRY else NO_TIMESTAMP
    topic_id = read_uuid(fields.tagged().get(TOPIC_ID_TAG))
    return OffsetCommitted(
        group_id,
        topic,
        partition,
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        topic_id,
    )


# ---- classic groups -----------------------------------------------------------------------------------------


def _group_key(group_id: str) -> bytes:
    return FieldWriter(GROUP_KEY_VERSION).string(group_id).done()


def _group_value(record: GroupRecorded) -> bytes:
    value = FieldWriter(GROUP_VALUE_VERSION).string(record.protocol_type).int32(record.generation)
    value.string(record.protocol).string(record.leader).int64(record.state_timestamp_ms)
    value.array(len(record.members))
    for member in record.members:
        value.string(member.member_id).string(member.instance_id)
        value.string(member.client_id).string(member.client_host)
        value.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        value.blob(member.subscription).blob(member.assignment)
    return value.done()


def _read_group(group_id: str, fields: FieldReader) -> GroupRecorded | None:
    version = fields.int16()
    if not 0 <= version <= GROUP_VALUE_VERSION_MAX:
        return None
    fields.flexible = version >= FLEXIBLE_SINCE
    protocol_type, generation = fields.string(), fields.int32()
    protocol, leader = fields.nullable_string(), fields.nullable_string()
    state_timestamp_ms = fields.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(version, fields) for _ in range(fields.array()))
    return GroupRecorded(group_id, protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _read_member(version: int, fields: FieldReader) -> MemberRecorded:
    member_id = fields.string()
    instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    if version == 0:  # there was one time-out for both
        rebalance_timeout_ms = session_timeout_ms
    subscription, assignment = fields.blob(), fields.blob()
    fields.tagged()
    return MemberRecorded(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
