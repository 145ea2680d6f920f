"""The cluster image in the store: which entries a record changes, and the image that the entries make.

Every change is conditional on the version that the image was made from, so a controller that has missed
something changes nothing (`store.port` says what is kept where).
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    ConfigChanged,
    ConfigResource,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)
from moldau.runtime.ports import Random
from moldau.store.port import Conflict, Create, Delete, Entry, Operation, Put, Store, quoted

CLUSTER_ID = "/cluster/id"
TOPICS = "/topics"
CONFIGS = {
    ResourceType.TOPIC: "/configs/topics",
    ResourceType.BROKER: "/configs/brokers",
    ResourceType.GROUP: "/configs/groups",
    ResourceType.CLIENT_METRICS: "/configs/client_metrics",
}
_DEFAULT_BROKER = "default"


def new_uuid(random: Random) -> UUID:
    """An id whose base64 form does not begin with '-', which command lines would take for an option."""
    while True:
        value = random.uuid()
        if not base64_of(value).startswith("-"):
            return value


def base64_of(value: UUID) -> str:
    """How Kafka writes ids."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


class PersistentImage:
    """Writes records to the store and applies them to the image: both, or neither."""

    def __init__(self, store: Store, image: ClusterImage, versions: dict[str, int]) -> None:
        self.image = image
        self._store = store
        self._versions = versions

    @classmethod
    async def load(cls, store: Store, random: Random) -> PersistentImage:
        """The image that the store has; a new cluster gets an id."""
        image = ClusterImage(await _cluster_id(store, random))
        versions: dict[str, int] = {}
        configs = {entry.name: entry for entry in await store.children(CONFIGS[ResourceType.TOPIC])}
        for entry in await store.children(TOPICS):
            settings: dict[str, str] = {}
            if (own := configs.get(entry.name)) is not None:
                versions[own.path] = own.version
                settings = json.loads(own.value)
            versions[entry.path] = entry.version
            image.apply(_topic_of(entry, settings))
        for type_, folder in CONFIGS.items():
            if type_ is not ResourceType.TOPIC:
                for entry in await store.children(folder):
                    versions[entry.path] = entry.version
                    image.apply(ConfigChanged(_resource_of(type_, entry.name), json.loads(entry.value)))
        return cls(store, image, versions)

    async def write(self, records: Sequence[Record]) -> None:
        """Conflict where the store is not as this image believes; then nothing has changed."""
        operations = [operation for record in records for operation in self._operations(record)]
        if operations:
            await self._store.multi(operations)
        for operation in operations:
            self._remember(operation)
        for record in records:
            self.image.apply(record)

    def _operations(self, record: Record) -> list[Operation]:
        match record:
            case TopicCreated():
                created: list[Operation] = [
                    Create(_topic_path(record.name), _topic_value(record.topic_id, record.partitions))
                ]
                if record.configs:
                    path = _config_path(ConfigResource(ResourceType.TOPIC, record.name))
                    created.append(Create(path, _json(record.configs)))
                return created
            case TopicDeleted():
                paths = (
                    _topic_path(record.name),
                    _config_path(ConfigResource(ResourceType.TOPIC, record.name)),
                )
                return [Delete(path, self._versions[path]) for path in paths if path in self._versions]
            case PartitionsAdded():
                partitions = self.image.topics[record.name].partitions + record.partitions
                return [self._put_topic(record.name, record.topic_id, partitions)]
            case PartitionsChanged():
                states = list(self.image.topics[record.name].partitions)
                for index, state in record.states.items():
                    states[index] = state
                return [self._put_topic(record.name, record.topic_id, tuple(states))]
            case ConfigChanged():
                return self._config_operations(record)
        return []

    def _put_topic(self, name: str, topic_id: UUID, partitions: tuple[PartitionState, ...]) -> Operation:
        path = _topic_path(name)
        return Put(path, _topic_value(topic_id, partitions), self._versions[path])

    def _config_operations(self, record: ConfigChanged) -> list[Operation]:
        path = _config_path(record.resource)
        version = self._versions.get(path)
        if version is None:
            return [Create(path, _json(record.configs))] if record.configs else []
        return [Put(path, _json(record.configs), version) if record.configs else Delete(path, version)]

    def _remember(self, operation: Operation) -> None:
        match operation:
            case Create(path):
                self._versions[path] = 0
            case Put(path):
                self._versions[path] += 1
            case Delete(path):
                del self._versions[path]


async def _cluster_id(store: Store, random: Random) -> str:
    if (entry := await store.get(CLUSTER_ID)) is None:
        try:
            await store.multi([Create(CLUSTER_ID, base64_of(new_uuid(random)).encode())])
        except Conflict:
            pass  # Another broker named the cluster first.
        entry = await store.get(CLUSTER_ID)
        assert entry is not None
    return entry.value.decode()


def _topic_path(name: str) -> str:
    return f"{TOPICS}/{quoted(name)}"


def _config_path(resource: ConfigResource) -> str:
    name = resource.name
    if resource.type is ResourceType.BROKER:
        name = name or _DEFAULT_BROKER
    return f"{CONFIGS[resource.type]}/{quoted(name)}"


def _resource_of(type_: ResourceType, name: str) -> ConfigResource:
    return ConfigResource(type_, "" if type_ is ResourceType.BROKER and name == _DEFAULT_BROKER else name)


def _topic_value(topic_id: UUID, partitions: tuple[PartitionState, ...]) -> bytes:
    return _json({"id": topic_id.hex, "partitions": [state._asdict() for state in partitions]})


def _topic_of(entry: Entry, configs: dict[str, str]) -> TopicCreated:
    value = json.loads(entry.value)
    partitions = tuple(
        PartitionState(
            state["leader"],
            state["leader_epoch"],
            tuple(state["replicas"]),
            tuple(state["isr"]),
            state["partition_epoch"],
        )
        for state in value["partitions"]
    )
    return TopicCreated(entry.name, UUID(value["id"]), partitions, configs)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
