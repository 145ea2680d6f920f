"""What classic members of type `consumer` send and get: subscriptions and assignments, topics by name.

ConsumerProtocolSubscription and ConsumerProtocolAssignment, as far as the coordinator must understand them when a
group has members of both protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.fields import BadFields, FieldReader, FieldWriter

CONSUMER = "consumer"
VERSION_MAX = 3


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    generation: int = -1
    rack_id: str | None = None


def read_subscription(metadata: bytes) -> Subscription:
    """BadFields where it is none. A version that is newer than all begins as the newest that is known."""
    fields = FieldReader(metadata)
    version = fields.int16()
    if version < 0:
        raise BadFields("a negative version")
    topics = tuple(fields.string() for _ in range(fields.array()))
    fields.blob()  # of its assignor
    owned = _read_partitions(fields) if version >= 1 else {}
    generation = fields.int32() if version >= 2 else -1
    rack_id = fields.nullable_string() if version >= 3 else None
    return Subscription(version, topics, owned, generation, rack_id)


def read_assignment(assignment: bytes) -> tuple[Mapping[str, tuple[int, ...]], bytes]:
    """The partitions, and what the assignor said besides."""
    if not assignment:
        return {}, b""
    fields = FieldReader(assignment)
    if fields.int16() < 0:
        raise BadFields("a negative version")
    return _read_partitions(fields), fields.blob()


def write_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    fields = FieldWriter(min(version, VERSION_MAX)).array(len(partitions))
    for topic, numbers in partitions.items():
        fields.string(topic).array(len(numbers))
        for number in numbers:
            fields.int32(number)
    return fields.int32(-1).done()  # nothing besides


def _read_partitions(fields: FieldReader) -> dict[str, tuple[int, ...]]:
    """A topic that is named twice counts with both."""
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(fields.array()):
        topic = fields.string()
        found[topic] = (*found.get(topic, ()), *(fields.int32() for _ in range(fields.array())))
    return found
