"""The records of KRaft's metadata log, as far as an import needs them.

A record is a frame version, a type and a version, each an unsigned varint, and then a message in Kafka's flexible
encoding. Types that say nothing about topics, configurations, brokers or producer ids are passed over; types that
Moldau has no place for (tokens) become `LeftOut`, so that the person can be told. A type or
version that Kafka 4.3 does not know is refused: what it changes cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct, error
from typing import NamedTuple
from uuid import UUID

from moldau.wire.primitives import WireError, read_uvarint

FRAME_VERSION = 1
NO_LEADER_CHANGE = -2

_INT8, _INT16, _INT32, _INT64, _FLOAT64 = (Struct(">" + code) for code in "bhiqd")


class BadRecord(ValueError):
    """The bytes are not the record that they claim to be."""


class UnknownRecord(Exception):
    """A type or version that Kafka 4.3 does not write."""


class TopicRecord(NamedTuple):
    name: str
    topic_id: UUID


class RemoveTopicRecord(NamedTuple):
    topic_id: UUID


class PartitionRecord(NamedTuple):
    partition: int
    topic_id: UUID
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...]


class PartitionChangeRecord(NamedTuple):
    """What is None stays as it was."""

    partition: int
    topic_id: UUID
    leader: int | None
    replicas: tuple[int, ...] | None
    directories: tuple[UUID, ...] | None


class ConfigRecord(NamedTuple):
    """A value of None: the setting is gone."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class ProducerIdsRecord(NamedTuple):
    next_producer_id: int


class FeatureLevelRecord(NamedTuple):
    name: str
    level: int


class RegisterBrokerRecord(NamedTuple):
    broker_id: int


class UnregisterBrokerRecord(NamedTuple):
    broker_id: int


class BeginTransactionRecord(NamedTuple):
    pass


class EndTransactionRecord(NamedTuple):
    pass


class AbortTransactionRecord(NamedTuple):
    pass


@dataclass(frozen=True, slots=True)
class ScramRecord:
    """A user's credential for one mechanism."""

    user: str
    mechanism: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class RemoveScramRecord(NamedTuple):
    user: str
    mechanism: int


class QuotaRecord(NamedTuple):
    """One limit of a client quota entity: its types with their names, None for the default."""

    entity: tuple[tuple[str, str | None], ...]
    key: str
    value: float
    removed: bool


class AclRecord(NamedTuple):
    """An ACL, with Kafka's numbers."""

    id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class RemoveAclRecord(NamedTuple):
    id: UUID


class LeftOut(NamedTuple):
    """Something that Moldau has no place for is there from now on, or gone."""

    kind: str
    key: object
    removed: bool


MetadataRecord = (
    TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | ScramRecord
    | RemoveScramRecord
    | QuotaRecord
    | AclRecord
    | RemoveAclRecord
    | LeftOut
)


def decode(data: bytes) -> MetadataRecord | None:
    """The record in the bytes; None for one that an import passes over. BadRecord, UnknownRecord."""
    reader = _Reader(data)
    try:
        frame_version, type_, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if frame_version != FRAME_VERSION:
            raise UnknownRecord(f"frame version {frame_version}")
        known = _TYPES.get(type_)
        if known is None or version > known.version_max:
            raise UnknownRecord(f"record type {type_} version {version}")
        if known.read is None:
            return None
        record = known.read(reader, version)
        reader.finish()
        return record
    except (IndexError, error, WireError, UnicodeDecodeError) as damage:
        raise BadRecord(f"no metadata record: {damage}") from None


class _Reader:
    """Steps through a message in the flexible encoding. Running over the end raises."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self._position = 0
        self._ended = False

    def uvarint(self) -> int:
        value, self._position = read_uvarint(self._view, self._position)
        return value

    def _fixed(self, struct: Struct) -> int:
        (value,) = struct.unpack_from(self._view, self._position)
        self._position += struct.size
        return int(value)

    def int8(self) -> int:
        return self._fixed(_INT8)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def raw(self, length: int) -> bytes:
        start, self._position = self._position, self._position + length
        if self._position > len(self._view):
            raise IndexError("cut off")
        return bytes(self._view[start : self._position])

    def uuid(self) -> UUID:
        return UUID(bytes=self.raw(16))

    def optional_bytes(self) -> bytes | None:
        length = self.uvarint()
        return self.raw(length - 1) if length else None

    def optional_string(self) -> str | None:
        data = self.optional_bytes()
        return None if data is None else data.decode()

    def string(self) -> str:
        text = self.optional_string()
        if text is None:
            raise WireError("null where there may be none")
        return text

    def length(self) -> int:
        """Of an array; null counts as empty."""
        length = max(self.uvarint() - 1, 0)
        if length > len(self._view) - self._position:
            raise WireError(f"array of {length}")
        return length

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.length()))

    def uuids(self) -> tuple[UUID, ...]:
        return tuple(self.uuid() for _ in range(self.length()))

    def tagged(self) -> dict[int, _Reader]:
        """The section of tagged fields."""
        return {self.uvarint(): _Reader(self.raw(self.uvarint())) for _ in range(self.uvarint())}

    def last_tagged(self) -> dict[int, _Reader]:
        """The section that ends the record."""
        self._ended = True
        return self.tagged()

    def finish(self) -> None:
        """Everything has been read, but perhaps the section of tagged fields that ends the record."""
        if not self._ended:
            self.tagged()
        if self._position != len(self._view):
            raise WireError(f"{len(self._view) - self._position} bytes are left over")


def _read_topic(reader: _Reader, _version: int) -> TopicRecord:
    return TopicRecord(reader.string(), reader.uuid())


def _read_remove_topic(reader: _Reader, _version: int) -> RemoveTopicRecord:
    return RemoveTopicRecord(reader.uuid())


def _read_partition(reader: _Reader, version: int) -> PartitionRecord:
    partition, topic_id, replicas = reader.int32(), reader.uuid(), reader.int32s()
    for _ in ("isr", "removing replicas", "adding replicas"):
        reader.int32s()
    leader, leader_epoch, partition_epoch = reader.int32(), reader.int32(), reader.int32()
    directories = reader.uuids() if version >= 1 else ()
    return PartitionRecord(partition, topic_id, replicas, leader, leader_epoch, partition_epoch, directories)


def _read_partition_change(reader: _Reader, _version: int) -> PartitionChangeRecord:
    partition, topic_id = reader.int32(), reader.uuid()
    tagged = reader.last_tagged()
    leader = tagged[1].int32() if 1 in tagged else NO_LEADER_CHANGE
    return PartitionChangeRecord(
        partition,
        topic_id,
        None if leader == NO_LEADER_CHANGE else leader,
        tagged[2].int32s() if 2 in tagged else None,
        tagged[8].uuids() if 8 in tagged else None,
    )


def _read_config(reader: _Reader, _version: int) -> ConfigRecord:
    return ConfigRecord(reader.int8(), reader.string(), reader.string(), reader.optional_string())


def _read_producer_ids(reader: _Reader, _version: int) -> ProducerIdsRecord:
    reader.int32()  # broker id
    reader.int64()  # broker epoch
    return ProducerIdsRecord(reader.int64())


def _read_feature_level(reader: _Reader, _version: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(reader.string(), reader.int16())


def _read_register_broker(reader: _Reader, version: int) -> RegisterBrokerRecord:
    broker_id = reader.int32()
    reader.raw((1 if version >= 2 else 0) + 16 + 8)  # migrating, incarnation, epoch
    for _ in range(reader.length()):  # end points
        reader.string(), reader.string()
        reader.raw(4)
        reader.tagged()
    for _ in range(reader.length()):  # features
        reader.string()
        reader.raw(4)
        reader.tagged()
    reader.optional_string()  # rack
    reader.raw(2 if version >= 1 else 1)  # fenced, in controlled shut-down
    return RegisterBrokerRecord(broker_id)


def _read_unregister_broker(reader: _Reader, _version: int) -> UnregisterBrokerRecord:
    broker_id = reader.int32()
    reader.int64()  # epoch
    return UnregisterBrokerRecord(broker_id)


def _read_begin(_reader: _Reader, _version: int) -> BeginTransactionRecord:
    return BeginTransactionRecord()


def _read_end(_reader: _Reader, _version: int) -> EndTransactionRecord:
    return EndTransactionRecord()


def _read_abort(_reader: _Reader, _version: int) -> AbortTransactionRecord:
    return AbortTransactionRecord()


def _read_acl(reader: _Reader, _version: int) -> AclRecord:
    acl_id, resource_type, name, pattern_type = reader.uuid(), reader.int8(), reader.string(), reader.int8()
    principal, host = reader.string(), reader.string()
    return AclRecord(acl_id, resource_type, name, pattern_type, principal, host, reader.int8(), reader.int8())


def _read_remove_acl(reader: _Reader, _version: int) -> RemoveAclRecord:
    return RemoveAclRecord(reader.uuid())


def _read_scram(reader: _Reader, _version: int) -> ScramRecord:
    user, mechanism = reader.string(), reader.int8()
    salt, stored_key, server_key = (reader.optional_bytes() or b"" for _ in range(3))
    return ScramRecord(user, mechanism, salt, stored_key, server_key, reader.int32())


def _read_remove_scram(reader: _Reader, _version: int) -> RemoveScramRecord:
    return RemoveScramRecord(reader.string(), reader.int8())


def _read_token(reader: _Reader, _version: int) -> LeftOut:
    reader.string(), reader.string()  # owner, requester
    for _ in range(reader.length()):
        reader.string()  # renewer
    reader.raw(24)  # issued, maximum, expires
    return LeftOut("delegation token", reader.string(), removed=False)


def _read_remove_token(reader: _Reader, _version: int) -> LeftOut:
    return LeftOut("delegation token", reader.string(), removed=True)


def _read_quota(reader: _Reader, _version: int) -> QuotaRecord:
    entity: list[tuple[str, str | None]] = []
    for _ in range(reader.length()):
        entity.append((reader.string(), reader.optional_string()))
        reader.tagged()
    key = reader.string()
    (value,) = _FLOAT64.unpack(reader.raw(8))
    return QuotaRecord(tuple(entity), key, value, bool(reader.int8()))


class _Type(NamedTuple):
    version_max: int
    read: Callable[[_Reader, int], MetadataRecord] | None
    """None: passed over."""


_TYPES = {
    0: _Type(4, _read_register_broker),
    1: _Type(0, _read_unregister_broker),
    2: _Type(0, _read_topic),
    3: _Type(2, _read_partition),
    4: _Type(0, _read_config),
    5: _Type(2, _read_partition_change),
    7: _Type(0, None),  # FenceBroker
    8: _Type(0, None),  # UnfenceBroker
    9: _Type(0, _read_remove_topic),
    10: _Type(0, _read_token),
    11: _Type(0, _read_scram),
    12: _Type(0, _read_feature_level),
    14: _Type(0, _read_quota),
    15: _Type(0, _read_producer_ids),
    17: _Type(3, None),  # BrokerRegistrationChange
    18: _Type(0, _read_acl),
    19: _Type(0, _read_remove_acl),
    20: _Type(0, None),  # NoOp
    21: _Type(0, None),  # ZkMigrationState
    22: _Type(0, _read_remove_scram),
    23: _Type(0, _read_begin),
    24: _Type(0, _read_end),
    25: _Type(0, _read_abort),
    26: _Type(0, _read_remove_token),
    27: _Type(0, None),  # RegisterController
    28: _Type(0, None),  # ClearElr
}
