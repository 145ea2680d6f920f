"""The cluster as a broker sees it: brokers, topics with their partitions, configurations.

`apply` is the only mutator, and `version` rises with every record; `position` says up to which write of the
controller the image is current, and is what two processes can compare. Topics and partition states are immutable
values, so a handler that holds one keeps a consistent picture. Broken references (a record about a topic that
is not there) break an invariant: the image would no longer be what the controller decided.

`registered` has every broker, `brokers` those that are not fenced. A snapshot makes an image from nothing
(`snapshot_of`, `image_from`); a broker's own image takes it over in one step (`become`), because others hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.base.invariant import invariant
from moldau.metadata.records import (
    NOWHERE,
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    ControllerElected,
    Delta,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Position,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    Snapshot,
    TopicCreated,
    TopicDeleted,
)

__all__ = ["BrokerInfo", "ClusterImage", "PartitionState", "Topic"]

NO_CONFIGS: Mapping[str, str] = {}


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class ClusterImage:
    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.controller_epoch = 0
        self.position: Position = NOWHERE
        self.version = 0
        self.next_producer_id = 0
        self.partition_count = 0
        self.registered: dict[int, BrokerInfo] = {}
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_by_id: dict[UUID, Topic] = {}
        self._configs: dict[ResourceType, dict[str, Mapping[str, str]]] = {
            type_: {} for type_ in ResourceType
        }
        # Names with '.' or '_', under the one spelling that they would share as a metric name.
        self._collisions: dict[str, list[str]] = {}

    def configs(self, resource: ConfigResource) -> Mapping[str, str]:
        """A resource's own settings; none where it has none."""
        if resource.type is ResourceType.TOPIC:
            topic = self.topics.get(resource.name)
            return NO_CONFIGS if topic is None else topic.configs
        return self._configs[resource.type].get(resource.name, NO_CONFIGS)

    def configured(self, type_: ResourceType) -> list[str]:
        """The names of all resources of a type that have settings of their own, sorted. (Not for topics.)"""
        return sorted(self._configs[type_])

    def configs_of(self, type_: ResourceType) -> Mapping[str, Mapping[str, str]]:
        """The settings of all resources of a type, by name. (Not for topics, which carry theirs.)"""
        return self._configs[type_]

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Dynamic settings by broker id as text; '' has those of all brokers."""
        return self._configs[ResourceType.BROKER]

    def colliding_topic(self, name: str) -> str | None:
        """An existing topic whose name differs only by '.' and '_'."""
        if "." in name or "_" in name:
            for other in self._collisions.get(_collision_key(name), ()):
                if other != name:
                    return other
        return None

    def apply_delta(self, delta: Delta) -> None:
        """The next write of the controller; one that does not follow breaks an invariant."""
        invariant(
            delta.sequence == self.position.sequence + 1 and delta.epoch >= self.position.epoch,
            f"the delta {delta.position} does not follow {self.position}",
        )
        for record in delta.records:
            self.apply(record)
        self.position = delta.position

    def become(self, other: ClusterImage) -> None:
        """Take over all that another image says, in one step. The other one is not to be used any more."""
        version = self.version + 1
        self.__dict__.update(other.__dict__)
        self.version = version

    def apply(self, record: Record) -> None:
        match record:
            case TopicCreated():
                self._create_topic(record)
            case TopicDeleted():
                self._delete_topic(record)
            case PartitionsAdded():
                topic = self._topic(record.name, record.topic_id)
                self._put(topic._replace(partitions=topic.partitions + record.partitions))
                self.partition_count += len(record.partitions)
            case PartitionsChanged():
                self._change_partitions(record)
            case ConfigChanged():
                self._change_configs(record)
            case BrokerRegistered():
                self._put_broker(record.broker)
            case BrokerChanged():
                self._change_broker(record)
            case BrokerUnregistered():
                self.registered.pop(record.broker_id, None)
                self.brokers.pop(record.broker_id, None)
            case ProducerIdsAllocated():
                invariant(record.next_producer_id >= self.next_producer_id, "producer ids are given twice")
                self.next_producer_id = record.next_producer_id
            case ControllerElected():
                invariant(record.epoch >= self.controller_epoch, "the controller epoch went back")
                self.controller_id, self.controller_epoch = record.broker_id, record.epoch
        self.version += 1

    def _put_broker(self, broker: BrokerInfo) -> None:
        self.registered[broker.id] = broker
        if broker.is_fenced:
            self.brokers.pop(broker.id, None)
        else:
            self.brokers[broker.id] = broker

    def _change_broker(self, record: BrokerChanged) -> None:
        broker = self.registered.get(record.broker_id)
        invariant(
            broker is not None and broker.epoch == record.epoch,
            f"no broker {record.broker_id} with the epoch {record.epoch}",
        )
        assert broker is not None
        self._put_broker(
            broker._replace(is_fenced=record.is_fenced, is_shutting_down=record.is_shutting_down)
        )

    def _topic(self, name: str, topic_id: UUID) -> Topic:
        topic = self.topics.get(name)
        invariant(topic is not None and topic.topic_id == topic_id, f"no topic {name} with the id {topic_id}")
        assert topic is not None
        return topic

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topic_by_id[topic.topic_id] = topic

    def _create_topic(self, record: TopicCreated) -> None:
        invariant(record.name not in self.topics, f"the topic {record.name} is there already")
        invariant(bool(record.partitions), f"the topic {record.name} has no partitions")
        self._put(Topic(record.name, record.topic_id, record.partitions, record.configs))
        self.partition_count += len(record.partitions)
        if "." in record.name or "_" in record.name:
            names = self._collisions.setdefault(_collision_key(record.name), [])
            names.append(record.name)
            names.sort()

    def _delete_topic(self, record: TopicDeleted) -> None:
        topic = self._topic(record.name, record.topic_id)
        del self.topics[topic.name]
        del self.topic_by_id[topic.topic_id]
        self.partition_count -= len(topic.partitions)
        key = _collision_key(topic.name)
        if key in self._collisions:
            self._collisions[key].remove(topic.name)
            if not self._collisions[key]:
                del self._collisions[key]

    def _change_partitions(self, record: PartitionsChanged) -> None:
        topic = self._topic(record.name, record.topic_id)
        partitions = list(topic.partitions)
        for index, state in record.states.items():
            invariant(0 <= index < len(partitions), f"no {record.name}-{index}")
            before = partitions[index]
            invariant(state.partition_epoch > before.partition_epoch, "the partition epoch did not rise")
            partitions[index] = state
        self._put(topic._replace(partitions=tuple(partitions)))

    def _change_configs(self, record: ConfigChanged) -> None:
        resource = record.resource
        if resource.type is ResourceType.TOPIC:
            topic = self.topics.get(resource.name)
            invariant(topic is not None, f"no topic {resource.name} to configure")
            assert topic is not None
            self._put(topic._replace(configs=record.configs))
        elif record.configs:
            self._configs[resource.type][resource.name] = record.configs
        else:
            self._configs[resource.type].pop(resource.name, None)


def records_of(image: ClusterImage) -> Iterator[Record]:
    """The records that make this image from nothing."""
    yield ControllerElected(image.controller_id, image.controller_epoch)
    yield ProducerIdsAllocated(image.next_producer_id)
    for broker in image.registered.values():
        yield BrokerRegistered(broker)
    for topic in image.topics.values():
        yield TopicCreated(topic.name, topic.topic_id, topic.partitions, topic.configs)
    for type_ in ResourceType:
        for name, configs in image.configs_of(type_).items():
            yield ConfigChanged(ConfigResource(type_, name), configs)


def snapshot_of(image: ClusterImage) -> Snapshot:
    """Cheap: the values are shared, not copied."""
    return Snapshot(image.cluster_id, image.position, tuple(records_of(image)))


def image_from(snapshot: Snapshot) -> ClusterImage:
    image = ClusterImage(snapshot.cluster_id)
    for record in snapshot.records:
        image.apply(record)
    image.position = snapshot.position
    return image


def _collision_key(name: str) -> str:
    return name.replace(".", "_")
