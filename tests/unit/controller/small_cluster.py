"""A cluster's image for tests of decisions, in few words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from moldau.config.broker import BrokerConfig
from moldau.controller.rules import Rules
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    BrokerInfo,
    BrokerRegistered,
    PartitionsChanged,
    PartitionState,
    Position,
    Record,
    TopicCreated,
)

TOPIC = UUID(int=7)


def incarnation(broker_id: int) -> UUID:
    return UUID(int=100 + broker_id)


def broker(broker_id: int, **fields: Any) -> BrokerInfo:
    return BrokerInfo(
        broker_id,
        {"PLAINTEXT": ("host", 9000 + broker_id)},
        epoch=broker_id * 10,
        incarnation=incarnation(broker_id),
        boot_id="boot",
    )._replace(**fields)


def cluster(*states: PartitionState, fenced: tuple[int, ...] = (), **configs: str) -> ClusterImage:
    """Brokers 1 to 4, and the topic `t`."""
    image = ClusterImage("cluster")
    for broker_id in (1, 2, 3, 4):
        image.apply(BrokerRegistered(broker(broker_id, is_fenced=broker_id in fenced)))
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    if states:
        image.apply(TopicCreated("t", TOPIC, states, settings))
    image.position = Position(3, 50)
    return image


def rules(**settings: str) -> Rules:
    return Rules(BrokerConfig.parse({key.replace("_", "."): value for key, value in settings.items()}))


def state_after(image: ClusterImage, records: list[Any], index: int = 0) -> PartitionState:
    """The partition when all records have been applied."""
    for record in records:
        image.apply(record)
    return image.topics["t"].partitions[index]


def changed_states(records: list[Record]) -> dict[int, PartitionState]:
    states: dict[int, PartitionState] = {}
    for record in records:
        if isinstance(record, PartitionsChanged):
            states.update(record.states)
    return states
