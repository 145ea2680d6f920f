"""How records become writes of the store: operations, cut into steps that fit into one `multi` each. Pure.

A step is done whole or not at all, and its records take effect with it. What must be seen together is in one step: a
topic's partitions are prepared first, in as many steps as they need, and its own entry comes last; a deleted topic's
entry goes first, and its partitions after it. So an interrupted change leaves entries that nobody refers to
(`debris_after`), and never a topic that lacks some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar
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

T = TypeVar("T")

OPERATIONS_PER_STEP = 240
"""What is made, carried out and told in one go takes some 10 ms of the loop. A `multi` takes 500."""
BYTES_PER_STEP = 256 * 1024
"""ZooKeeper takes 1 MB by default."""


class Step(NamedTuple):
    operations: tuple[Operation, ...]
    records: tuple[Record, ...]


def steps_of(image: ClusterImage, records: Iterable[Record], debris: Iterable[str] = ()) -> Iterator[Step]:
    """The writes for some records, after the removal of what an interrupted change has left. Each is made when it is
    asked for, so that a long change holds nobody up; the image must not change meanwhile but by these records.
    """
    plan = _Plan(image)
    yield from plan.through(plan.remove, debris)
    yield from plan.through(plan.add, records)
    yield from plan.last()


def tidying_steps(debris: Iterable[str], converted: Iterable[TopicCreated]) -> Iterator[Step]:
    """The removal of what nobody refers to; then topics of the old layout, which are in the image, in the new one."""
    plan = _Plan(ClusterImage(""))
    yield from plan.through(plan.remove, debris)
    yield from plan.through(plan.convert, converted)
    yield from plan.last()


def debris_after(done: Iterable[Step], left: Iterable[Step]) -> list[str]:
    """The entries that nobody refers to when only the first steps of a change were done."""
    prepared: dict[UUID, list[str]] = {}
    for step in done:
        for operation in step.operations:
            if isinstance(operation, Create) and (owner := _owner(operation)) is not None:
                prepared.setdefault(owner, []).append(operation.path)
        for record in step.records:
            if isinstance(record, TopicCreated | PartitionsAdded):
                prepared.pop(record.topic_id, None)
    paths = [path for prepared_paths in prepared.values() for path in prepared_paths]
    still_there: set[UUID] = set()
    for step in left:
        still_there |= {record.topic_id for record in step.records if isinstance(record, TopicDeleted)}
        for operation in step.operations:
            if isinstance(operation, Delete):
                owner = _owner(operation)
                if owner is not None and owner not in still_there:
                    paths.append(operation.path)
    return paths


def _owner(operation: Operation) -> UUID | None:
    named = layout.partition_named(operation.path)
    return None if named is None else named[0]


class _Plan:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._ready: list[Step] = []
        self._operations: list[Operation] = []
        self._records: list[Record] = []
        self._bytes = 0
        # What the records before have changed, where it says which operation is right.
        self._configs: dict[ConfigResource, bool] = {}
        self._brokers: dict[int, BrokerInfo | None] = {}
        self._counts: dict[UUID, int] = {}

    def through(self, take: Callable[[T], Iterator[None]], items: Iterable[T]) -> Iterator[Step]:
        """Take one after the other, and give the steps that have become full."""
        for item in items:
            for _ in take(item):
                if self._ready:
                    yield from self._ready
                    self._ready = []

    def last(self) -> Iterator[Step]:
        self._close()
        yield from self._ready

    def _close(self) -> None:
        if self._operations or self._records:
            self._ready.append(Step(tuple(self._operations), tuple(self._records)))
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

    def remove(self, path: str) -> Iterator[None]:
        self._put([Delete(path)])
        yield

    def add(self, record: Record) -> Iterator[None]:
        match record:
            case TopicCreated():
                yield from self._create_topic(record)
            case TopicDeleted():
                yield from self._delete_topic(record)
            case PartitionsAdded():
                yield from self._add_partitions(record)
            case PartitionsChanged():
                yield from self._change_partitions(record)
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
        yield

    def _count(self, name: str, topic_id: UUID) -> int:
        if topic_id not in self._counts:
            self._counts[topic_id] = len(self._image.topics[name].partitions)
        return self._counts[topic_id]

    def _prepare(self, topic_id: UUID, partitions: Sequence[PartitionState], first: int) -> Iterator[None]:
        for index, state in enumerate(partitions, first):
            self._put([Create(layout.partition_path(topic_id, index), layout.partition_value(state))])
            yield

    def _create_topic(self, record: TopicCreated) -> Iterator[None]:
        name, topic_id, partitions, configs = record
        yield from self._prepare(topic_id, partitions, 0)
        operations: list[Operation] = [
            Create(layout.topic_path(name), layout.topic_value(topic_id, len(partitions)))
        ]
        if configs:
            path = layout.config_path(ConfigResource(ResourceType.TOPIC, name))
            operations.append(Create(path, layout.configs_value(configs)))
        self._configs[ConfigResource(ResourceType.TOPIC, name)] = bool(configs)
        self._counts[topic_id] = len(partitions)
        self._put(operations, record)

    def _add_partitions(self, record: PartitionsAdded) -> Iterator[None]:
        name, topic_id, partitions = record
        count = self._count(name, topic_id)
        yield from self._prepare(topic_id, partitions, count)
        count += len(partitions)
        self._counts[topic_id] = count
        self._put([Put(layout.topic_path(name), layout.topic_value(topic_id, count))], record)

    def convert(self, topic: TopicCreated) -> Iterator[None]:
        name, topic_id, partitions, _ = topic
        yield from self._prepare(topic_id, partitions, 0)
        self._put([Put(layout.topic_path(name), layout.topic_value(topic_id, len(partitions)))])
        yield

    def _delete_topic(self, record: TopicDeleted) -> Iterator[None]:
        name, topic_id = record
        operations: list[Operation] = [Delete(layout.topic_path(name))]
        resource = ConfigResource(ResourceType.TOPIC, name)
        if self._has_configs(resource):
            operations.append(Delete(layout.config_path(resource)))
        self._configs[resource] = False
        count = self._count(name, topic_id)
        self._put(operations, record)
        for index in range(count):
            yield from self.remove(layout.partition_path(topic_id, index))

    def _change_partitions(self, record: PartitionsChanged) -> Iterator[None]:
        name, topic_id, states = record
        items = list(states.items())
        start = 0
        while start < len(items):
            room = OPERATIONS_PER_STEP - len(self._operations)
            some = items[start : start + room]
            start += len(some)
            puts = [
                Put(layout.partition_path(topic_id, index), layout.partition_value(state))
                for index, state in some
            ]
            self._put(puts, PartitionsChanged(name, topic_id, dict(some)))
            if len(self._operations) >= OPERATIONS_PER_STEP:
                self._close()
            yield

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
