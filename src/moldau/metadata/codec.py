"""Records as bytes, for the deltas and snapshots that a controller sends: JSON arrays, both ways.

The work comes in steps: `encoded` gives one piece after the other, each with a bounded number of partitions, and
`decoded` takes them back one by one, so that a caller can let others run in between. A topic with more partitions
than fit into a piece goes as its creation with some and additions with the rest, which applied together say the
same. Bytes that are not records raise ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from moldau.metadata.records import (
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    ControllerElected,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)

PARTITIONS_PER_PIECE = 500
"""A piece takes about 2 ms to encode, and to decode."""

Plain = list[Any]


def encoded(records: Iterable[Record]) -> Iterator[bytes]:
    """The records in pieces; each step makes one."""
    piece: list[Plain] = []
    weight = 0
    for record in records:
        for part, part_weight in _parts(record):
            if piece and weight + part_weight > PARTITIONS_PER_PIECE:
                yield _bytes(piece)
                piece, weight = [], 0
            piece.append(_plain(part))
            weight += part_weight
    if piece:
        yield _bytes(piece)


def decoded(pieces: Iterable[bytes]) -> Iterator[list[Record]]:
    """The records of one piece after the other."""
    for piece in pieces:
        try:
            yield [_RECORDS[tag](*fields) for tag, *fields in json.loads(piece)]
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"not a record: {error}") from error


def _parts(record: Record) -> Iterator[tuple[Record, int]]:
    """The record, or several that say the same; with the number of partitions in each, at least 1."""
    most = PARTITIONS_PER_PIECE
    match record:
        case TopicCreated(name, topic_id, partitions, configs) if len(partitions) > most:
            yield TopicCreated(name, topic_id, partitions[:most], configs), most
            yield from _parts(PartitionsAdded(name, topic_id, partitions[most:]))
        case PartitionsAdded(name, topic_id, partitions) if len(partitions) > most:
            for start in range(0, len(partitions), most):
                some = partitions[start : start + most]
                yield PartitionsAdded(name, topic_id, some), len(some)
        case PartitionsChanged(name, topic_id, states) if len(states) > most:
            items = list(states.items())
            for start in range(0, len(items), most):
                changed = dict(items[start : start + most])
                yield PartitionsChanged(name, topic_id, changed), len(changed)
        case TopicCreated() | PartitionsAdded():
            yield record, len(record.partitions)
        case PartitionsChanged():
            yield record, max(1, len(record.states))
        case _:
            yield record, 1


def _plain(record: Record) -> Plain:
    match record:
        case BrokerRegistered(broker):
            return ["broker", plain_broker(broker)]
        case BrokerChanged():
            return ["broker changed", *record]
        case BrokerUnregistered():
            return ["broker gone", *record]
        case ControllerElected():
            return ["controller", *record]
        case TopicCreated(name, topic_id, partitions, configs):
            return ["topic", name, topic_id.hex, partitions, configs]
        case TopicDeleted(name, topic_id):
            return ["topic gone", name, topic_id.hex]
        case PartitionsAdded(name, topic_id, partitions):
            return ["partitions added", name, topic_id.hex, partitions]
        case PartitionsChanged(name, topic_id, states):
            return ["partitions", name, topic_id.hex, list(states), list(states.values())]
        case ConfigChanged(resource, configs):
            return ["configs", int(resource.type), resource.name, configs]
        case ProducerIdsAllocated():
            return ["producer ids", *record]


def plain_broker(broker: BrokerInfo) -> Plain:
    return [
        broker.id,
        broker.listeners,
        broker.rack,
        broker.epoch,
        broker.incarnation.hex,
        broker.is_fenced,
        broker.is_shutting_down,
        [log_dir.hex for log_dir in broker.log_dirs],
        broker.boot_id,
    ]


def broker_from(plain: Plain) -> BrokerInfo:
    id_, listeners, rack, epoch, incarnation, is_fenced, is_shutting_down, log_dirs, boot_id = plain
    return BrokerInfo(
        id_,
        {name: None if address is None else (address[0], address[1]) for name, address in listeners.items()},
        rack,
        epoch,
        UUID(incarnation),
        is_fenced,
        is_shutting_down,
        tuple(map(UUID, log_dirs)),
        boot_id,
    )


def state_from(plain: Plain) -> PartitionState:
    leader, leader_epoch, replicas, isr, epoch, elr, known, adding, removing, recovering, offline = plain
    return PartitionState(
        leader,
        leader_epoch,
        tuple(replicas),
        tuple(isr),
        epoch,
        tuple(elr),
        tuple(known),
        tuple(adding),
        tuple(removing),
        recovering,
        tuple(offline),
    )


def _states(plain: list[Plain]) -> tuple[PartitionState, ...]:
    return tuple(map(state_from, plain))


def _topic(name: str, topic_id: str, partitions: list[Plain], configs: Mapping[str, str]) -> Record:
    return TopicCreated(name, UUID(topic_id), _states(partitions), configs)


def _changed(name: str, topic_id: str, indexes: list[int], states: list[Plain]) -> Record:
    return PartitionsChanged(name, UUID(topic_id), dict(zip(indexes, _states(states), strict=True)))


def _configs(type_: int, name: str, configs: Mapping[str, str]) -> Record:
    return ConfigChanged(ConfigResource(ResourceType(type_), name), configs)


_RECORDS: dict[str, Callable[..., Record]] = {
    "broker": lambda plain: BrokerRegistered(broker_from(plain)),
    "broker changed": BrokerChanged,
    "broker gone": BrokerUnregistered,
    "controller": ControllerElected,
    "topic": _topic,
    "topic gone": lambda name, topic_id: TopicDeleted(name, UUID(topic_id)),
    "partitions added": lambda name, topic_id, partitions: PartitionsAdded(
        name, UUID(topic_id), _states(partitions)
    ),
    "partitions": _changed,
    "configs": _configs,
    "producer ids": ProducerIdsAllocated,
}


def _bytes(piece: list[Plain]) -> bytes:
    return json.dumps(piece, separators=(",", ":")).encode()
