"""What a change of min.insync.replicas means for eligible replicas (KIP-966). Pure.

A leader whose in-sync set has become large enough by a lower setting moves its high watermark on at once, without those
who had stayed eligible while it stood still. So they stop being eligible in the same write, before any leader hears of
the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.config.broker import BrokerConfig
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Election
from moldau.controller.rules import MIN_ISR, Rules
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import ConfigChanged, PartitionsChanged, Record, ResourceType


def decide_min_isr(
    image: ClusterImage, config: BrokerConfig, records: Iterable[Record]
) -> list[PartitionsChanged]:
    """The partitions that change with these settings; `config` is the controller's broker's, before them."""
    changed: list[PartitionsChanged] = []
    for record in records:
        if isinstance(record, ConfigChanged) and _is_about(image, record):
            changed += _changes(image, config, record)
    return changed


def _is_about(image: ClusterImage, record: ConfigChanged) -> bool:
    return image.configs(record.resource).get(MIN_ISR) != record.configs.get(MIN_ISR)


def _changes(image: ClusterImage, config: BrokerConfig, record: ConfigChanged) -> list[PartitionsChanged]:
    if record.resource.type is ResourceType.BROKER:
        own = config.dynamic if record.resource.name == "" else record.configs
        default = record.configs if record.resource.name == "" else config.dynamic_default
        config = config.with_dynamic(default, own)
    changes = Changes(image, Rules(config))
    for topic in _topics(image, record):
        for index, state in enumerate(topic.partitions):
            if state.elr:
                changes.change(topic, index, election=Election.ONLINE)
    return changes.records()


def _topics(image: ClusterImage, record: ConfigChanged) -> Iterator[Topic]:
    """The topics whose setting changes, with their settings as they will be."""
    if record.resource.type is ResourceType.TOPIC:
        yield image.topics[record.resource.name]._replace(configs=record.configs)
    elif record.resource.type is ResourceType.BROKER:
        for topic in image.topics.values():
            if MIN_ISR not in topic.configs:
                yield topic
