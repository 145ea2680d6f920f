"""The records of consumer groups in `__consumer_offsets`, in Kafka's formats: kinds 3 to 8, and 16.

Each thing that changes by itself has a record of its own: the group's epoch, a member and its subscription, the epoch
of the target assignment, a member's target, what a member has now, and what a regular expression stands for. Kind 4,
the partitions of subscribed topics, is what Kafka wrote before 4.1: it is read, and taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from moldau.coordinator.fields import FieldReader, FieldWriter

EPOCH_KEY = 3
PARTITION_METADATA_KEY = 4
MEMBER_KEY = 5
TARGET_EPOCH_KEY = 6
TARGET_KEY = 7
CURRENT_KEY = 8
REGEX_KEY = 16
KEYS = (EPOCH_KEY, PARTITION_METADATA_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY, REGEX_KEY)
NAMED_KEYS = (MEMBER_KEY, TARGET_KEY, CURRENT_KEY, REGEX_KEY)
"""Those whose key has a member, or an expression, beside the group."""

VALUE_VERSION = 0
"""Of all of them; all are flexible."""
METADATA_HASH_TAG = 0
ASSIGNMENT_TIME_TAG = 0
ASSIGNMENT_EPOCHS_TAG = 0
CLASSIC_TAG = 0
PRESENT, ABSENT = 1, b"\0"
"""Before a struct that may be null, and in its place. Kafka writes the tag of one that is null, too."""

Target = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic, in order."""
Assigned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which it was assigned (KIP-1251)."""


class EpochRecorded(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int = 0
    """Of the topics that the group reads: another one when partitions come or topics go."""


class EpochForgotten(NamedTuple):
    group_id: str


class PartitionMetadataRecorded(NamedTuple):
    """Only that there is one."""

    group_id: str


class PartitionMetadataForgotten(NamedTuple):
    group_id: str


class ClassicMetadata(NamedTuple):
    """What a member brought that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberRecorded(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMetadata | None = None


class MemberForgotten(NamedTuple):
    group_id: str
    member_id: str


class TargetEpochRecorded(NamedTuple):
    group_id: str
    epoch: int
    timestamp_ms: int = 0


class TargetEpochForgotten(NamedTuple):
    group_id: str


class TargetRecorded(NamedTuple):
    group_id: str
    member_id: str
    target: Target


class TargetForgotten(NamedTuple):
    group_id: str
    member_id: str


class CurrentRecorded(NamedTuple):
    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Assigned
    revoking: Assigned


class CurrentForgotten(NamedTuple):
    group_id: str
    member_id: str


class RegexRecorded(NamedTuple):
    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    """Of the cluster's metadata that it was resolved with."""
    timestamp_ms: int


class RegexForgotten(NamedTuple):
    group_id: str
    regex: str


ConsumerRecord = (
    EpochRecorded
    | EpochForgotten
    | PartitionMetadataRecorded
    | PartitionMetadataForgotten
    | MemberRecorded
    | MemberForgotten
    | TargetEpochRecorded
    | TargetEpochForgotten
    | TargetRecorded
    | TargetForgotten
    | CurrentRecorded
    | CurrentForgotten
    | RegexRecorded
    | RegexForgotten
)


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    kind, value = _KINDS[type(record)]
    key = FieldWriter(kind)
    for name in record[: 2 if kind in NAMED_KEYS else 1]:
        key.string(str(name))
    return key.done(), None if value is None else value(record)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ConsumerRecord | None:
    """The rest of a key whose kind was read. None for a version that is not known."""
    group_id = key.string()
    name = (group_id, key.string()) if kind in NAMED_KEYS else (group_id,)
    if value is None:
        return _FORGOTTEN[kind](*name)
    fields = FieldReader(value)
    if fields.int16() != VALUE_VERSION:
        return None
    fields.flexible = True
    return _READERS[kind](*name, fields)


# ---- writing ------------------------------------------------------------------------------------------------


def _writer() -> FieldWriter:
    return FieldWriter(VALUE_VERSION, flexible=True)


def _epoch_value(record: EpochRecorded) -> bytes:
    tags = {METADATA_HASH_TAG: _int64(record.metadata_hash)} if record.metadata_hash else {}
    return _writer().int32(record.epoch).tagged(tags).done()


def _member_value(record: MemberRecorded) -> bytes:
    value = _writer().string(record.instance_id).string(record.rack_id)
    value.string(record.client_id).string(record.client_host).array(len(record.topics))
    for topic in record.topics:
        value.string(topic)
    value.string(record.regex).int32(record.rebalance_timeout_ms).string(record.assignor)
    return value.tagged({CLASSIC_TAG: _classic(record.classic)}).done()


def _classic(classic: ClassicMetadata | None) -> bytes:
    if classic is None:
        return ABSENT
    fields = _writer().int8(PRESENT).int32(classic.session_timeout_ms).array(len(classic.protocols))
    for name, metadata in classic.protocols:
        fields.string(name).blob(metadata).tagged()
    return fields.tagged().done()[2:]


def _target_epoch_value(record: TargetEpochRecorded) -> bytes:
    tags = {ASSIGNMENT_TIME_TAG: _int64(record.timestamp_ms)} if record.timestamp_ms else {}
    return _writer().int32(record.epoch).tagged(tags).done()


def _target_value(record: TargetRecorded) -> bytes:
    value = _writer().array(len(record.target))
    for topic_id, partitions in record.target.items():
        value.uuid(topic_id).int32s(partitions).tagged()
    return value.tagged().done()


def _current_value(record: CurrentRecorded) -> bytes:
    value = _writer().int32(record.epoch).int32(record.previous_epoch).int8(record.state)
    for assigned in (record.assigned, record.revoking):
        value.array(len(assigned))
        for topic_id, partitions in assigned.items():
            epochs = _writer().int32s(partitions.values()).done()[2:]
            value.uuid(topic_id).int32s(partitions).tagged({ASSIGNMENT_EPOCHS_TAG: epochs})
    return value.tagged().done()


def _regex_value(record: RegexRecorded) -> bytes:
    value = _writer().array(len(record.topics))
    for topic in record.topics:
        value.string(topic)
    return value.int64(record.version).int64(record.timestamp_ms).tagged().done()


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


_KINDS: Mapping[type, tuple[int, Callable[[Any], bytes] | None]] = {
    EpochRecorded: (EPOCH_KEY, _epoch_value),
    EpochForgotten: (EPOCH_KEY, None),
    PartitionMetadataRecorded: (PARTITION_METADATA_KEY, lambda _record: _writer().array(0).tagged().done()),
    PartitionMetadataForgotten: (PARTITION_METADATA_KEY, None),
    MemberRecorded: (MEMBER_KEY, _member_value),
    MemberForgotten: (MEMBER_KEY, None),
    TargetEpochRecorded: (TARGET_EPOCH_KEY, _target_epoch_value),
    TargetEpochForgotten: (TARGET_EPOCH_KEY, None),
    TargetRecorded: (TARGET_KEY, _target_value),
    TargetForgotten: (TARGET_KEY, None),
    CurrentRecorded: (CURRENT_KEY, _current_value),
    CurrentForgotten: (CURRENT_KEY, None),
    RegexRecorded: (REGEX_KEY, _regex_value),
    RegexForgotten: (REGEX_KEY, None),
}

# ---- reading ------------------------------------------------------------------------------------------------


def _read_epoch(group_id: str, fields: FieldReader) -> EpochRecorded:
    epoch = fields.int32()
    return EpochRecorded(group_id, epoch, _read_int64(fields.tagged().get(METADATA_HASH_TAG)))


def _read_member(group_id: str, member_id: str, fields: FieldReader) -> MemberRecorded:
    instance_id, rack_id = fields.nullable_string(), fields.nullable_string()
    client_id, client_host = fields.string(), fields.string()
    topics = tuple(fields.string() for _ in range(fields.array()))
    regex, rebalance_timeout_ms = fields.nullable_string() or "", fields.int32()
    assignor = fields.nullable_string()
    classic = _read_classic(fields.tagged().get(CLASSIC_TAG))
    return MemberRecorded(
        group_id,
        member_id,
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        regex,
        rebalance_timeout_ms,
        assignor,
        classic,
    )


def _read_classic(data: memoryview | None) -> ClassicMetadata | None:
    if data is None:
        return None
    fields = FieldReader(bytes(data), flexible=True)
    if fields.int8() != PRESENT:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.array()):
        protocols.append((fields.string(), fields.blob()))
        fields.tagged()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _read_target_epoch(group_id: str, fields: FieldReader) -> TargetEpochRecorded:
    epoch = fields.int32()
    return TargetEpochRecorded(group_id, epoch, _read_int64(fields.tagged().get(ASSIGNMENT_TIME_TAG)))


def _read_target(group_id: str, member_id: str, fields: FieldReader) -> TargetRecorded:
    target = {}
    for _ in range(fields.array()):
        topic_id = fields.uuid()
        target[topic_id] = fields.int32s()
        fields.tagged()
    return TargetRecorded(group_id, member_id, target)


def _read_current(group_id: str, member_id: str, fields: FieldReader) -> CurrentRecorded:
    epoch, previous_epoch, state = fields.int32(), fields.int32(), fields.int8()
    assigned, revoking = _read_assigned(fields), _read_assigned(fields)
    return CurrentRecorded(group_id, member_id, epoch, previous_epoch, state, assigned, revoking)


def _read_assigned(fields: FieldReader) -> Assigned:
    """Before 4.3 partitions had no epochs: they count as assigned in the first one."""
    assigned = {}
    for _ in range(fields.array()):
        topic_id, partitions = fields.uuid(), fields.int32s()
        tagged = fields.tagged().get(ASSIGNMENT_EPOCHS_TAG)
        epochs: tuple[int, ...] = ()
        if tagged is not None:
            epochs = FieldReader(bytes(tagged), flexible=True).int32s()
        if len(epochs) != len(partitions):
            epochs = (0,) * len(partitions)
        assigned[topic_id] = dict(zip(partitions, epochs, strict=True))
    return assigned


def _read_regex(group_id: str, regex: str, fields: FieldReader) -> RegexRecorded:
    topics = tuple(fields.string() for _ in range(fields.array()))
    return RegexRecorded(group_id, regex, topics, fields.int64(), fields.int64())


def _read_int64(data: memoryview | None) -> int:
    return 0 if data is None else int.from_bytes(data, "big", signed=True)


_READERS: Mapping[int, Callable[..., ConsumerRecord]] = {
    EPOCH_KEY: _read_epoch,
    PARTITION_METADATA_KEY: lambda group_id, _fields: PartitionMetadataRecorded(group_id),
    MEMBER_KEY: _read_member,
    TARGET_EPOCH_KEY: _read_target_epoch,
    TARGET_KEY: _read_target,
    CURRENT_KEY: _read_current,
    REGEX_KEY: _read_regex,
}
_FORGOTTEN: Mapping[int, Callable[..., ConsumerRecord]] = {
    EPOCH_KEY: EpochForgotten,
    PARTITION_METADATA_KEY: PartitionMetadataForgotten,
    MEMBER_KEY: MemberForgotten,
    TARGET_EPOCH_KEY: TargetEpochForgotten,
    TARGET_KEY: TargetForgotten,
    CURRENT_KEY: CurrentForgotten,
    REGEX_KEY: RegexForgotten,
}
