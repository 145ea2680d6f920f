"""The changes of the cluster image, as values: what the controller decides and every broker applies.

A record says what is true afterwards, never how to get there, so that applying it needs nothing but the
image. The image of a follower is kept current by sending it these.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1


class PartitionState(NamedTuple):
    """Who holds and leads a partition. The partition epoch rises with every change, the leader's with the
    leader.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0


class BrokerInfo(NamedTuple):
    """A broker that is there. A listener without an advertised address has None: see `broker.advertised`."""

    id: int
    listeners: Mapping[str, tuple[str, int] | None]
    rack: str | None = None
    epoch: int = 0


class ResourceType(IntEnum):
    """What carries configuration, with its number in requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One carrier of configuration; the broker named '' is the default of all brokers."""

    type: ResourceType
    name: str


class BrokerRegistered(NamedTuple):
    broker: BrokerInfo


class BrokerUnregistered(NamedTuple):
    broker_id: int


class ControllerElected(NamedTuple):
    broker_id: int
    epoch: int


class TopicCreated(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]


class TopicDeleted(NamedTuple):
    name: str
    topic_id: UUID


class PartitionsAdded(NamedTuple):
    """The new partitions follow those that the topic has."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]


class PartitionsChanged(NamedTuple):
    """Some partitions of a topic have other states now, by their numbers."""

    name: str
    topic_id: UUID
    states: Mapping[int, PartitionState]


class ConfigChanged(NamedTuple):
    """The whole of a resource's own settings, as it is now; an empty one is none."""

    resource: ConfigResource
    configs: Mapping[str, str]


Record = (
    BrokerRegistered
    | BrokerUnregistered
    | ControllerElected
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsChanged
    | ConfigChanged
)
