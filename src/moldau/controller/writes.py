"""How records become writes of the store: operations, cut into steps that fit into one `multi` each. Pure.

A step is done whole or not at all, and its records take effect with it. What must be seen together is in one step: a
topic's partitions are prepared first, in as many steps as they need, and its own entry comes last; a deleted topic's
entry goes first, and its partitions after it. So an interrupted change leaves entries that nobody refers to
(`debris_after`), and never a topic that lacks some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.invariant import invariant
from moldau.controller import layout
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)
from moldau.store.port import Create, Delete, Operation, Put

OPERATIONS_PER_STEP = 490
"""With the controller's own entry and the claim's, below 500."""
BYTES_PER_STEP = 256 * 1024
"""ZooKeeper takes 1 MB by default."""


class Step(NamedTuple):
    operations: tuple[Operation, ...]
    records: tuple[Record, ...]


def steps_of(image: ClusterImage, records: Iterable[Record], debris: Iterable[str] = ()) -> list[Step]:
    """The writes for some records, after the removal of what an interrupted change has left."""
    plan = _Plan(image)
    for path in debris:
        plan.remove(path)
    for record in records:
        plan.add(record)
    return plan.steps()


def tidying_steps(debris: Iterable[str], converted: Iterable[TopicCreated]) -> list[Step]:
    """The removal of what nobody refers to; then topics of the old layout, which are in the image, in the new one."""
    plan = _Plan(ClusterImage(""))
    for path in debris:
        plan.remove(path)
    for topic in converted:
        plan.convert(topic)
    return plan.steps()


def debris_after(steps: Sequence[Step], done: int) -> list[str]:
    """The entries that nobody refers to when only so many steps were done; what lies deeper comes first."""
    prepared: dict[UUID, list[str]] = {}
    for step in steps[:done]:
        for operation in step.operations:
            if isinstance(operation, Create) and (owner := layout.owner_of(operation.path)) is not None:
                prepared.setdefault(owner, []).append(operation.path)
        for record in step.records:
            match record:
                case TopicCreated(topic_id=topic_id) | PartitionsAdded(topic_id=topic_id):
                    prepared.pop(topic_id, None)
    pending = {
        record.topic_id
        for step in steps[done:]
        for record in step.records
        if isinstance(record, TopicDeleted)
    }
    left = [path for paths in prepared.values() for path in paths]
    for step in steps[done:]:
        for operation in step.operations:
            if isinstance(operation, Delete):
                owner = layout.owner_of(operation.path)
                if owner is not None and owner not in pending:
                    left.append(operation.path)
    return sorted(left, key=lambda path: -path.count("/"))


class _Plan:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._steps: list[Step] = []
        self._operations: list[Operation] = []
        self._records: list[Record] = []
        self._bytes = 0
        # What the records before have changed, where it says which operation is right.
        self._configs: dict[ConfigResource, bool] = {}
        self._brokers: dict[int, BrokerInfo | None] = {}
        self._counts: dict[UUID, int] = {}

    def steps(self) -> list[Step]:
        self._close()
        return self._steps

    def _close(self) -> None:
        if self._operations or self._records:
            self._steps.append(Step(tuple(self._operations), tuple(self._records)))
            self._operations, self._records, self._bytes = [], [], 0

    def _put(self, operations: Sequence[Operation], record: Record | None = None) -> None:
        """Operations that belong together, and the record that takes effect with them."""
        size = sum(len(op.path) + len(getattr(op, "value", b"")) for op in operations)
        too_many = len(self._operations) + len(operations) > OPERATIONS_PER_STEP
        if self._operations and (too_many or self._bytes + size > BYTES_PER_STEP):
            self._close()
        self._operations += operations
        self._bytes += size
        if record is not None:
            self._records.append(record)

    def remove(self, path: str) -> None:
        self._put([Delete(path)])

    def add(self, record: Record) -> None:
        match record:
            case TopicCreated():
                self._create_topic(record)
            case TopicDeleted():
                self._delete_topic(record)
            case PartitionsAdded(name, topic_id, partitions):
                count = self._count(name, topic_id)
                self._prepare(topic_id, partitions, count)
                count += len(partitions)
                self._put([Put(layout.topic_path(name), layout.topic_value(topic_id, count))], record)
                self._counts[topic_id] = count
            case PartitionsChanged():
                self._change_partitions(record)
            case ConfigChanged():
                self._change_configs(record)
            case BrokerRegistered(broker):
                self._put_broker(broker, record)
            case BrokerChanged(broker_id, _, is_fenced, is_shutting_down):
                known = self._broker(broker_id)
                invariant(known is not None, f"no broker {broker_id} to change")
                assert known is not None
                self._put_broker(
                    known._replace(is_fenced=is_fenced, is_shutting_down=is_shutting_down), record
                )
            case BrokerUnregistered(broker_id):
                self._put([Delete(layout.broker_path(broker_id))], record)
                self._brokers[broker_id] = None
            case ProducerIdsAllocated(next_producer_id):
                self._put([Put(layout.PRODUCER_IDS, str(next_producer_id).encode())], record)
            case _:  # who the controller is, its own entry says
                self._put([], record)

    def _count(self, name: str, topic_id: UUID) -> int:
        if topic_id not in self._counts:
            self._counts[topic_id] = len(self._image.topics[name].partitions)
        return self._counts[topic_id]

    def _prepare(self, topic_id: UUID, partitions: Sequence[PartitionState], first: int) -> None:
        for index, state in enumerate(partitions, first):
            self._put([Create(layout.partition_path(topic_id, index), layout.partition_value(state))])

    def _create_topic(self, record: TopicCreated) -> None:
        name, topic_id, partitions, configs = record
        self._put([Create(layout.partitions_path(topic_id), name.encode())])
        self._prepare(topic_id, partitions, 0)
        operations: list[Operation] = [
            Create(layout.topic_path(name), layout.topic_value(topic_id, len(partitions)))
        ]
        if configs:
            path = layout.config_path(ConfigResource(ResourceType.TOPIC, name))
            operations.append(Create(path, layout.configs_value(configs)))
        self._configs[ConfigResource(ResourceType.TOPIC, name)] = bool(configs)
        self._put(operations, record)
        self._counts[topic_id] = len(partitions)

    def convert(self, topic: TopicCreated) -> None:
        name, topic_id, partitions, _ = topic
        self._put([Create(layout.partitions_path(topic_id), name.encode())])
        self._prepare(topic_id, partitions, 0)
        self._put([Put(layout.topic_path(name), layout.topic_value(topic_id, len(partitions)))])

    def _delete_topic(self, record: TopicDeleted) -> None:
        name, topic_id = record
        operations: list[Operation] = [Delete(layout.topic_path(name))]
        resource = ConfigResource(ResourceType.TOPIC, name)
        if self._has_configs(resource):
            operations.append(Delete(layout.config_path(resource)))
        self._configs[resource] = False
        self._put(operations, record)
        count = self._count(name, topic_id)
        for index in range(count):
            self.remove(layout.partition_path(topic_id, index))
        self.remove(layout.partitions_path(topic_id))

    def _change_partitions(self, record: PartitionsChanged) -> None:
        name, topic_id, states = record
        items = list(states.items())
        while items:
            if len(self._operations) >= OPERATIONS_PER_STEP:
                self._close()
            room = OPERATIONS_PER_STEP - len(self._operations)
            some, items = items[:room], items[room:]
            puts = [
                Put(layout.partition_path(topic_id, index), layout.partition_value(state))
                for index, state in some
            ]
            self._put(puts, PartitionsChanged(name, topic_id, dict(some)))

    def _has_configs(self, resource: ConfigResource) -> bool:
        return self._configs.get(resource, bool(self._image.configs(resource)))

    def _change_configs(self, record: ConfigChanged) -> None:
        resource, configs = record
        path = layout.config_path(resource)
        there = self._has_configs(resource)
        operations: list[Operation] = []
        if configs:
            value = layout.configs_value(configs)
            operations.append(Put(path, value) if there else Create(path, value))
        elif there:
            operations.append(Delete(path))
        self._configs[resource] = bool(configs)
        self._put(operations, record)

    def _broker(self, broker_id: int) -> BrokerInfo | None:
        return self._brokers.get(broker_id, self._image.registered.get(broker_id))

    def _put_broker(self, broker: BrokerInfo, record: Record) -> None:
        path, value = layout.broker_path(broker.id), layout.broker_value(broker)
        is_new = self._broker(broker.id) is None
        self._put([Create(path, value) if is_new else Put(path, value)], record)
        self._brokers[broker.id] = broker
