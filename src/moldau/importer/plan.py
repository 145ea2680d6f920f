"""What an import will do: the records for Moldau's cluster store, the files, and what a person should know. Pure.

The node keeps its id and leads every partition, in a new epoch, as after a restart of Kafka. Settings that Moldau
would refuse are left out, and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moldau.base.errors import KafkaError
from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.topic import check_topic_overrides, topic_config
from moldau.controller.acls import decide_create
from moldau.controller.quotas import check_entity, check_value
from moldau.controller.rules import MIN_ISR
from moldau.controller.users import MECHANISM_NUMBERS
from moldau.importer.kraft_cluster import KafkaTopic
from moldau.importer.source import Source
from moldau.importer.source_log import SourceLog
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    ConfigChanged,
    ConfigResource,
    PartitionState,
    Record,
    ResourceType,
    TopicCreated,
)
from moldau.runtime.line import whole
from moldau.security.acls import Acl, Entry, Operation, Pattern, Permission, Resource
from moldau.security.quotas import entity_key, shown_entity, value_text
from moldau.security.sasl.credentials import Credential, Mechanism

NOTED_NAMES_MAX = 3

Configs = Mapping[tuple[int, str], Mapping[str, str]]
"""Settings by the type and the name of what they are for."""


@dataclass(frozen=True, slots=True)
class Plan:
    source: Source
    next_producer_id: int = 0
    """The first that Moldau gives."""
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def topics(self) -> list[TopicCreated]:
        return [record for record in self.records if isinstance(record, TopicCreated)]

    @property
    def has_users(self) -> bool:
        changed = (record for record in self.records if isinstance(record, ConfigChanged))
        return any(record.resource.type is ResourceType.USER for record in changed)

    @property
    def logs(self) -> list[SourceLog]:
        return list(self.source.logs.values())

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs)


def plan_import(source: Source, now_ms: int) -> Plan:
    # Kafka goes on with its own where it takes the folders back, and does not hear of those that were given here: two
    # producers with one id would pass for each other's retries. Those of a later import are above those of this one.
    plan = Plan(source, source.cluster.next_producer_id + now_ms)
    for topic in source.cluster.topics:
        plan.records.append(_topic(source, topic, plan.notes))
    for (type_, name), configs in sorted(_with_one_min_isr(source, plan.notes).items()):
        resource = ConfigResource(ResourceType(type_), name)
        if resource.type is ResourceType.BROKER:
            configs = _broker_configs(source.node_id, name, configs, plan.notes)
        if resource.type is not ResourceType.TOPIC and configs:
            plan.records.append(ConfigChanged(resource, configs))
    plan.records.extend(_users(source, plan.notes))
    plan.records.extend(_quotas(source, plan.notes))
    plan.records.extend(_acls(source, plan.notes))
    plan.notes.extend(_notes(source))
    plan.notes.extend(_old_records(plan, now_ms))
    return plan


def _users(source: Source, notes: list[str]) -> Iterator[ConfigChanged]:
    """With the salted keys that Kafka has of them: passwords stay what they are."""
    for user, own in sorted(source.cluster.users.items()):
        credentials = {}
        for number, record in sorted(own.items()):
            if number not in MECHANISM_NUMBERS or "\0" in user:
                notes.append(
                    f"A SCRAM credential of user {user!r} is not taken over: it is of no known kind."
                )
                continue
            mechanism = Mechanism(number)
            keys = record.salt, record.stored_key, record.server_key
            credentials[mechanism.title] = Credential(mechanism, *keys, record.iterations).text
        if credentials:
            yield ConfigChanged(ConfigResource(ResourceType.USER, user), credentials)


def _quotas(source: Source, notes: list[str]) -> Iterator[ConfigChanged]:
    for parts, values in sorted(source.cluster.quotas.items(), key=repr):
        entity = dict(parts)
        kept = {}
        for key, value in sorted(values.items()):
            try:
                check_value(check_entity(entity), key, value)
                kept[key] = value_text(value)
            except KafkaError as error:
                notes.append(f"A quota of {shown_entity(entity)} is not taken over: {error}")
        if kept:
            yield ConfigChanged(ConfigResource(ResourceType.CLIENT_QUOTA, entity_key(entity)), kept)


def _acls(source: Source, notes: list[str]) -> list[ConfigChanged]:
    """As a controller would make them: what it refuses is told."""
    wanted: list[Acl] = []
    for one in sorted(source.cluster.acls.values()):
        try:
            operation, permission = Operation(one.operation), Permission(one.permission_type)
            entry = Entry(one.principal, one.host, operation, permission)
            resource, pattern = Resource(one.resource_type), Pattern(one.pattern_type)
        except ValueError:
            notes.append(
                f"An ACL of {one.principal} on {one.resource_name} is not taken over: Moldau does not know its kind."
            )
        else:
            wanted.append(Acl(resource, pattern, one.resource_name, entry))
    outcomes, records = whole(decide_create(ClusterImage(""), wanted))
    for acl, refusal in zip(wanted, outcomes, strict=True):
        if refusal is not None:
            notes.append(f"An ACL is not taken over, {acl}: {refusal}")
    return records


def _with_one_min_isr(source: Source, notes: list[str]) -> Configs:
    """Kafka's settings. A min.insync.replicas of the broker alone, as Kafka allows without KIP-966, is that of all."""
    configs = dict(source.cluster.configs)
    of_broker, of_all = (int(ResourceType.BROKER), str(source.node_id)), (int(ResourceType.BROKER), "")
    own = dict(configs.get(of_broker, {}))
    if MIN_ISR in own:
        value = own.pop(MIN_ISR)
        configs |= {of_broker: own, of_all: {**configs.get(of_all, {}), MIN_ISR: value}}
        notes.append(f"{MIN_ISR}={value} of broker {source.node_id} is that of all brokers now.")
    return configs


def _topic(source: Source, topic: KafkaTopic, notes: list[str]) -> TopicCreated:
    node_id = source.node_id
    partitions = tuple(
        PartitionState(
            leader=node_id,
            leader_epoch=state.leader_epoch + 1,
            replicas=(node_id,),
            isr=(node_id,),
            partition_epoch=state.partition_epoch + 1,
        )
        for _, state in sorted(topic.partitions.items())
    )
    kept = {}
    for name, value in source.cluster.topic_configs(topic.name).items():
        try:
            check_topic_overrides(_DEFAULTS, {name: value})
            kept[name] = value
        except ConfigError as error:
            notes.append(f"{name}={value} of topic {topic.name} is not taken over: {error}.")
    return TopicCreated(topic.name, topic.topic_id, partitions, kept)


def _broker_configs(node_id: int, name: str, configs: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    if name not in ("", str(node_id)):
        return {}  # of a broker that has gone
    kept = {}
    for key, value in configs.items():
        try:
            _DEFAULTS.with_dynamic({key: value}, {})
            kept[key] = value
        except ConfigError as error:
            notes.append(
                f"{key} of {f'broker {name}' if name else 'all brokers'} is not taken over: {error}."
            )
    return kept


def _notes(source: Source) -> list[str]:
    notes = []
    for kind, held in source.cluster.left_out.items():
        if held:
            plural = kind + ("s" if len(held) > 1 else "")
            notes.append(
                f"{len(held)} {plural} {'are' if len(held) > 1 else 'is'} not taken over: {_WHY[kind]}"
            )
    waiting = [str(log.partition) for log in source.logs.values() if log.has_open_transactions]
    if waiting:
        notes.append(
            f"{_some(waiting)}: a transaction is open, and consumers with read_committed see nothing behind it before"
            " it ends. End it while Kafka runs (kafka-transactions.sh abort), if nobody is to go on with it."
        )
    if source.strays:
        notes.append(f"{_some(list(source.strays))}: of no topic in Kafka's metadata; not taken over.")
    return notes


def _old_records(plan: Plan, now_ms: int) -> list[str]:
    """Kafka may have kept for longer, by settings of its own file, what Moldau's defaults let go."""
    own = {
        record.resource.name: record.configs
        for record in plan.records
        if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.BROKER
    }
    broker = _DEFAULTS.with_dynamic(own.get("", {}), own.get(str(plan.source.node_id), {}))
    configs = {topic.name: topic_config(broker, topic.configs) for topic in plan.topics}
    old = [
        str(log.partition)
        for log in plan.logs
        if (config := configs[log.partition.topic]).delete
        and 0 <= config.retention_ms < now_ms - (now_ms if log.oldest_ms is None else log.oldest_ms)
    ]
    if not old:
        return []
    return [
        f"{_some(old)}: records older than the topic's retention, which would be removed soon after the start."
        " Give Moldau the log.retention settings of Kafka's server.properties to keep them."
    ]


def _some(found: list[str]) -> str:
    more = len(found) - NOTED_NAMES_MAX
    return ", ".join(found[:NOTED_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


_DEFAULTS = BrokerConfig.parse({})
_WHY = {
    "delegation token": "Moldau has none.",
}
