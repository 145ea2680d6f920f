"""min.insync.replicas is one value for the whole cluster, and what a change of it means for eligible replicas. Pure.

The leader keeps its high watermark where it is while the in-sync set is smaller than that, and the controller keeps
those eligible who have fallen out of it meanwhile (KIP-966): both must go by the same value. So it is a setting of the
cluster, not of a broker: a cluster that has none gets that of its controller's file, and values of single brokers go
(Kafka's ConfigurationControlManager.maybeGenerateElrSafetyRecords; `configs` refuses new ones).

A leader whose in-sync set has become large enough by a lower setting moves its high watermark on at once, without those
who had stayed eligible while it stood still. So they stop being eligible in the same write, before any leader hears of
the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.config.broker import BrokerConfig
from moldau.config.table import BROKER_KEYS
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Election, Target
from moldau.controller.rules import MIN_ISR, Rules
from moldau.controller.slices import LOOKS_PER_SLICE, Portion, Slices
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import ConfigChanged, ConfigResource, PartitionsChanged, Record, ResourceType

ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


def decide_one_min_isr(image: ClusterImage, config: BrokerConfig) -> list[Record]:
    """What makes it one value, where it is not yet; `config` is the controller's broker's.

    Until then leaders may have gone by other values than those who kept replicas eligible. So nobody is eligible any
    more where somebody is in sync; where nobody is, the eligible are all there is.
    """
    settings: list[Record] = []
    of_all = image.configs(ALL_BROKERS)
    if MIN_ISR not in of_all:
        value = config.static.get(MIN_ISR, str(BROKER_KEYS[MIN_ISR].default))
        settings.append(ConfigChanged(ALL_BROKERS, {**of_all, MIN_ISR: value}))
    for name, configs in sorted(image.broker_configs.items()):
        if name and MIN_ISR in configs:
            rest = {key: value for key, value in configs.items() if key != MIN_ISR}
            settings.append(ConfigChanged(ConfigResource(ResourceType.BROKER, name), rest))
    if not settings:
        return []
    changes = Changes(image, Rules(config))
    for topic, index, state in changes.partitions():
        if state.elr and state.isr and MIN_ISR not in topic.configs:
            changes.change(topic, index, Target(ineligible=state.elr), Election.ONLINE)
    return [*changes.records(), *settings]


class MinIsrChange(NamedTuple):
    is_changed: bool
    partitions: list[PartitionsChanged]


def decide_min_isr(
    image: ClusterImage, config: BrokerConfig, records: Iterable[Record]
) -> Slices[MinIsrChange]:
    """Whether some min.insync.replicas changes with these records, and the partitions that change with it; `config` is
    the controller's broker's, before them.
    """
    portion = Portion()
    changed: list[PartitionsChanged] = []
    is_changed = False
    for number, record in enumerate(records, 1):
        if isinstance(record, ConfigChanged) and changes_min_isr(image, record):
            is_changed = True
            changed += yield from _changes(image, config, record, portion)
        elif number % LOOKS_PER_SLICE == 0:
            yield
    return MinIsrChange(is_changed, changed)


def changes_min_isr(image: ClusterImage, record: Record) -> bool:
    return (
        isinstance(record, ConfigChanged)
        and (record.resource == ALL_BROKERS or record.resource.type is ResourceType.TOPIC)
        and image.configs(record.resource).get(MIN_ISR) != record.configs.get(MIN_ISR)
    )


def _changes(
    image: ClusterImage, config: BrokerConfig, record: ConfigChanged, portion: Portion
) -> Slices[list[PartitionsChanged]]:
    if record.resource == ALL_BROKERS:
        config = config.with_dynamic(record.configs, config.dynamic)
    changes = Changes(image, Rules(config))
    for topic in _topics(image, record):
        if portion.take():
            yield
        for index, state in enumerate(topic.partitions):
            if portion.take():
                yield
            if state.elr:
                changes.change(topic, index, election=Election.ONLINE)
    return changes.records()


def _topics(image: ClusterImage, record: ConfigChanged) -> Iterator[Topic]:
    """The topics whose setting changes, with their settings as they will be."""
    if record.resource.type is ResourceType.TOPIC:
        yield image.topics[record.resource.name]._replace(configs=record.configs)
    else:
        for topic in image.topics.values():
            if MIN_ISR not in topic.configs:
                yield topic
