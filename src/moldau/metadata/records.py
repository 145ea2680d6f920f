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
NO_INCARNATION = UUID(int=0)


class Position(NamedTuple):
    """How far an image is: the controller's epoch and the cluster-wide number of its last write. The sequence goes on
    from controller to controller, so that positions are ordered.
    """

    epoch: int
    sequence: int


NOWHERE = Position(0, 0)


class PartitionState(NamedTuple):
    """Who holds and leads a partition. The partition epoch rises with every change, the leader's with the leader.

    The first replica is the preferred leader. While a reassignment is under way, `replicas` are all who hold it,
    `adding` those who come and `removing` those who go (KIP-455).
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: out of sync, but with everything below the high watermark (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    """The leader was elected uncleanly, and has not made its log whole yet (KIP-704)."""
    offline: tuple[int, ...] = ()
    """Replicas whose log directory has failed while their broker goes on; until the broker registers anew."""


class BrokerInfo(NamedTuple):
    """A broker that has registered. A listener without an advertised address has None: see `broker.advertised`."""

    id: int
    listeners: Mapping[str, tuple[str, int] | None]
    rack: str | None = None
    epoch: int = 0
    """Rises with every registration: the sequence of the write that registered it (KIP-903)."""
    incarnation: UUID = NO_INCARNATION
    is_fenced: bool = False
    is_shutting_down: bool = False
    log_dirs: tuple[UUID, ...] = ()
    boot_id: str = ""
    """The machine's boot: with another one, what was not flushed before a crash is gone."""

    @property
    def is_active(self) -> bool:
        """It may lead, and enter in-sync sets (Kafka's ClusterControlManager.isActive)."""
        return not self.is_fenced and not self.is_shutting_down


class ResourceType(IntEnum):
    """What carries configuration, with its number in requests; and what security has to keep."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    # Kept as settings are, and shown by APIs of their own: no request can name these numbers.
    ACLS = 1001
    USER = 1002
    CLIENT_QUOTA = 1003

    @property
    def is_configuration(self) -> bool:
        return self < ResourceType.ACLS


class ConfigResource(NamedTuple):
    """One carrier of configuration; the broker named '' is the default of all brokers."""

    type: ResourceType
    name: str


class BrokerRegistered(NamedTuple):
    """A broker is there, or there again."""

    broker: BrokerInfo


class BrokerChanged(NamedTuple):
    """A registered broker is fenced, serves again, or shuts down."""

    broker_id: int
    epoch: int
    is_fenced: bool
    is_shutting_down: bool


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


class ProducerIdsAllocated(NamedTuple):
    """Every producer id below this one belongs to some broker."""

    next_producer_id: int


Record = (
    BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | ControllerElected
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsChanged
    | ConfigChanged
    | ProducerIdsAllocated
)


class Delta(NamedTuple):
    """What one write of the controller changed; a write that only prepares another has no records."""

    epoch: int
    sequence: int
    records: tuple[Record, ...]

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.sequence)


class Snapshot(NamedTuple):
    """A whole image at a position, as the records that make it from nothing."""

    cluster_id: str
    position: Position
    records: tuple[Record, ...]
