"""Where the cluster's image lies in the store, and what each entry says: paths and values, both ways. Pure.

- `/cluster/id`: the cluster's id, as text.
- `/cluster/layout`: the version of this layout, as text.
- `/controller/state`: JSON: the controller's epoch, the sequence of its last write, its broker id, a mark of its own.
- `/brokers/registered/<id>`: JSON: a broker as it registered, and whether it is fenced.
- `/topics/<name>`: JSON: the topic's id and its number of partitions.
- `/partitions/<digit>/<topic id>-<n>`: JSON: one partition's state with its replicas. The digit is the topic id's
  first: sixteen folders are read with few requests, and none has too many entries for ZooKeeper.
- `/configs/topics/<name>`, `/configs/brokers/<id or default>`, `/configs/groups/<name>`,
  `/configs/client_metrics/<name>`: JSON: the settings that the resource has of its own.
- `/security/acls/<resource>`, `/security/users/<name>`, `/security/quotas/<entity>`: JSON, as of settings: the ACLs
  of a resource, the salted keys of a user, the quotas of whom they are for.
- `/producer_ids/next_block`: the first producer id that no broker has, as text.

In the layout of before a topic's entry had the states of all its partitions; `old_states` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from moldau.metadata.codec import broker_from, plain_broker
from moldau.metadata.records import BrokerInfo, ConfigResource, PartitionState, Position, ResourceType
from moldau.store.port import quoted

CLUSTER_ID = "/cluster/id"
LAYOUT = "/cluster/layout"
LAYOUT_VERSION = 2
"""It goes up when an older version of Moldau could misread, or break, what a newer one has written. 2: /security, which
an older one would leave unread, and let everyone in."""
STATE = "/controller/state"
BROKERS = "/brokers/registered"
TOPICS = "/topics"
PARTITIONS = "/partitions"
PARTITION_FOLDERS = tuple(f"{PARTITIONS}/{digit}" for digit in "0123456789abcdef")
PRODUCER_IDS = "/producer_ids/next_block"
CONFIGS = {
    ResourceType.TOPIC: "/configs/topics",
    ResourceType.BROKER: "/configs/brokers",
    ResourceType.GROUP: "/configs/groups",
    ResourceType.CLIENT_METRICS: "/configs/client_metrics",
    ResourceType.ACLS: "/security/acls",
    ResourceType.USER: "/security/users",
    ResourceType.CLIENT_QUOTA: "/security/quotas",
}
_DEFAULT_BROKER = "default"
_BROKER_FIELDS = [
    "id",
    "listeners",
    "rack",
    "epoch",
    "incarnation",
    "is_fenced",
    "is_shutting_down",
    "log_dirs",
    "boot_id",
]  # as `plain_broker` gives them
_PARTITION_DEFAULTS = PartitionState._field_defaults


class ControllerState(NamedTuple):
    epoch: int
    sequence: int
    controller: int
    mark: str
    unfinished: bool = False
    """A change is cut into several writes, and this is not the last: there may be entries that nobody refers to."""

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.sequence)


class TopicEntry(NamedTuple):
    topic_id: UUID
    partition_count: int


def topic_path(name: str) -> str:
    return f"{TOPICS}/{quoted(name)}"


def partition_path(topic_id: UUID, index: int) -> str:
    name = topic_id.hex
    return f"{PARTITIONS}/{name[0]}/{name}-{index}"


def partition_named(path: str) -> tuple[UUID, int] | None:
    """The topic's id and the number of the partition that a path stands for; None where it is something else."""
    if not path.startswith(PARTITIONS):
        return None
    topic_id, _, index = path.rpartition("/")[2].partition("-")
    return UUID(topic_id), int(index)


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def config_path(resource: ConfigResource) -> str:
    name = resource.name
    if resource.type is ResourceType.BROKER:
        name = name or _DEFAULT_BROKER
    return f"{CONFIGS[resource.type]}/{quoted(name)}"


def resource_of(type_: ResourceType, name: str) -> ConfigResource:
    return ConfigResource(type_, "" if type_ is ResourceType.BROKER and name == _DEFAULT_BROKER else name)


def state_value(state: ControllerState) -> bytes:
    return _json(state._asdict())


def state_of(value: bytes) -> ControllerState:
    return ControllerState(**json.loads(value))


def topic_value(topic_id: UUID, partition_count: int) -> bytes:
    return _json({"id": topic_id.hex, "partitions": partition_count})


def topic_of(value: bytes) -> TopicEntry:
    plain = json.loads(value)
    count = plain["partitions"]
    return TopicEntry(UUID(plain["id"]), len(count) if isinstance(count, list) else count)


def old_states(value: bytes) -> tuple[PartitionState, ...] | None:
    """The states of a topic's partitions where its entry has them all, as in the layout of before."""
    states = json.loads(value)["partitions"]
    return tuple(map(_partition, states)) if isinstance(states, list) else None


def partition_value(state: PartitionState) -> bytes:
    """Fields that say nothing are left out: most partitions are neither moved nor short of replicas."""
    plain = state._asdict()
    for name, default in _PARTITION_DEFAULTS.items():
        if plain[name] == default:
            del plain[name]
    return _json(plain)


def partition_of(value: bytes) -> PartitionState:
    return _partition(json.loads(value))


def _partition(plain: dict[str, Any]) -> PartitionState:
    for name, value in plain.items():
        if type(value) is list:
            plain[name] = tuple(value)
    return PartitionState(**plain)


def broker_value(broker: BrokerInfo) -> bytes:
    return _json(dict(zip(_BROKER_FIELDS, plain_broker(broker), strict=True)))


def broker_of(value: bytes) -> BrokerInfo:
    plain = json.loads(value)
    return broker_from([plain[name] for name in _BROKER_FIELDS])


def configs_value(configs: Mapping[str, str]) -> bytes:
    return _json(configs)


def configs_of(value: bytes) -> dict[str, str]:
    configs: dict[str, str] = json.loads(value)
    return configs


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
