"""The cluster that a metadata log describes. `apply` is its only mutator; a record about a topic that is not there,
or an unfinished transaction's end, is damage.

Records between the begin and the end of a metadata transaction (KIP-868) count when it ends; one that is still open
at the end of the log has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from moldau.importer.kraft_log import BadMetadata, Entry, Voters
from moldau.importer.kraft_records import (
    AbortTransactionRecord,
    AclRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    LeftOut,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    RegisterBrokerRecord,
    RemoveAclRecord,
    RemoveScramRecord,
    RemoveTopicRecord,
    ScramRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from moldau.metadata.records import ResourceType

METADATA_VERSION = "metadata.version"


class KafkaPartition(NamedTuple):
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...]
    """The data folder of each replica; zero where it is not known."""


class KafkaTopic:
    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, KafkaPartition] = {}


class KafkaCluster:
    def __init__(self) -> None:
        self.brokers: set[int] = set()
        self.voter_count = 0
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        """By type and name of the resource."""
        self.left_out: dict[str, set[object]] = {}
        """What Moldau has no place for, by kind."""
        self.users: dict[str, dict[int, ScramRecord]] = {}
        """With their SCRAM credentials by mechanism."""
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        """By entity: its types with their names, None for the default."""
        self.acls: dict[UUID, AclRecord] = {}
        self._topics: dict[UUID, KafkaTopic] = {}
        self._transaction: list[Entry] | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> KafkaCluster:
        cluster = cls()
        for entry in entries:
            cluster.apply(entry)
        return cluster

    @property
    def topics(self) -> list[KafkaTopic]:
        """By name."""
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    @property
    def metadata_version(self) -> int | None:
        return self.features.get(METADATA_VERSION)

    def topic_configs(self, name: str) -> dict[str, str]:
        return self.configs.get((ResourceType.TOPIC, name), {})

    def apply(self, entry: Entry) -> None:
        match entry:
            case BeginTransactionRecord():
                self._transaction = []
            case EndTransactionRecord():
                waiting, self._transaction = self._transaction, None
                if waiting is None:
                    raise BadMetadata("the metadata ends a transaction that did not begin")
                for record in waiting:
                    self._apply(record)
            case AbortTransactionRecord():
                self._transaction = None
            case Voters():
                self.voter_count = entry.count
            case _ if self._transaction is not None:
                self._transaction.append(entry)
            case _:
                self._apply(entry)

    def _apply(self, record: Entry) -> None:
        match record:
            case TopicRecord():
                self._topics[record.topic_id] = KafkaTopic(record.name, record.topic_id)
            case RemoveTopicRecord():
                topic = self._topic(record.topic_id)
                del self._topics[topic.topic_id]
                self.configs.pop((ResourceType.TOPIC, topic.name), None)
            case PartitionRecord():
                self._topic(record.topic_id).partitions[record.partition] = KafkaPartition(*record[2:])
            case PartitionChangeRecord():
                self._change_partition(record)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case FeatureLevelRecord():
                self.features[record.name] = record.level
            case RegisterBrokerRecord():
                self.brokers.add(record.broker_id)
            case UnregisterBrokerRecord():
                self.brokers.discard(record.broker_id)
            case ScramRecord():
                self.users.setdefault(record.user, {})[record.mechanism] = record
            case RemoveScramRecord():
                self._remove_credential(record)
            case QuotaRecord():
                self._change_quota(record)
            case AclRecord():
                self.acls[record.id] = record
            case RemoveAclRecord():
                self.acls.pop(record.id, None)
            case LeftOut():
                self._count(record)

    def _topic(self, topic_id: UUID) -> KafkaTopic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise BadMetadata(f"the metadata speaks of a topic that is not there, with the id {topic_id}")
        return topic

    def _change_partition(self, change: PartitionChangeRecord) -> None:
        topic = self._topic(change.topic_id)
        before = topic.partitions.get(change.partition)
        if before is None:
            raise BadMetadata(f"the metadata changes {topic.name}-{change.partition}, which is not there")
        topic.partitions[change.partition] = KafkaPartition(
            before.replicas if change.replicas is None else change.replicas,
            before.leader if change.leader is None else change.leader,
            before.leader_epoch + (change.leader is not None),
            before.partition_epoch + 1,
            before.directories if change.directories is None else change.directories,
        )

    def _configure(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.resource_type not in ResourceType.__members__.values():
            raise BadMetadata(
                f"the metadata configures a resource of the unknown type {record.resource_type}"
            )
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
        elif resource in self.configs:
            self.configs[resource].pop(record.name, None)
            if not self.configs[resource]:
                del self.configs[resource]

    def _remove_credential(self, record: RemoveScramRecord) -> None:
        own = self.users.get(record.user, {})
        own.pop(record.mechanism, None)
        if not own:
            self.users.pop(record.user, None)

    def _change_quota(self, record: QuotaRecord) -> None:
        own = self.quotas.setdefault(tuple(sorted(record.entity)), {})
        if record.removed:
            own.pop(record.key, None)
        else:
            own[record.key] = record.value

    def _count(self, record: LeftOut) -> None:
        held = self.left_out.setdefault(record.kind, set())
        if record.removed:
            held.discard(record.key)
        else:
            held.add(record.key)
