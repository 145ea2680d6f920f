"""What DescribeConfigs and CreateTopics tell about a resource's settings: value, source, synonyms. Pure.

Sources and synonyms are Kafka's, with its peculiarities: a topic key's synonyms are listed from its first
broker key on, so `log.retention.hours` is not among those of `retention.ms` unless `log.retention.ms` is set
too. The entries have the attributes of the DescribeConfigs answer, and are sorted by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from moldau.config.broker import BrokerConfig
from moldau.config.key import Key, Scope, Update, format_value
from moldau.config.table import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, broker_key


class Source(IntEnum):
    """Where a value comes from, with its number in answers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    config_type: int
    documentation: str | None


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if name in overrides:
            value = format_value(key.type, key.parse(overrides[name]))
            own = [Synonym(name, value, Source.TOPIC)]
        elif not key.hidden:
            value = format_value(key.type, broker.topic_default(name))
            own = []
        else:
            continue
        entries.append(_entry(key, value, own + _inherited(broker, key)))
    return entries


def effective_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """As CreateTopics tells it: a value that is set in the topic's or the broker's configuration stays as
    it was written.
    """
    entries = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if name in overrides:
            entries.append(_entry(key, overrides[name], [Synonym(name, None, Source.TOPIC)]))
        elif not key.hidden:
            value = format_value(key.type, broker.topic_default(name))
            entries.append(_entry(key, value, [Synonym(name, None, _source_of_default(broker, key))]))
    return entries


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """Everything that this broker goes by, and Kafka's other keys as far as they were set."""
    listed = (name for name, key in BROKER_KEYS.items() if not key.told_if_set)
    names = {*listed, *broker.static, *broker.dynamic_default, *broker.dynamic}
    keys = [key for key in map(broker_key, sorted(names)) if key is not None]
    return [_entry(key, _broker_value(broker, key), _synonyms(broker, key.name, key)) for key in keys]


def describe_default_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """What all brokers were told while they run."""
    entries = []
    for name, text in sorted(broker.dynamic_default.items()):
        if (key := broker_key(name)) is not None:
            value = None if key.sensitive else text
            entries.append(_entry(key, value, [Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)]))
    return entries


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, key in sorted(GROUP_KEYS.items()):
        inherited = _inherited(broker, key) if key.synonyms else [Synonym(name, key.default, Source.DEFAULT)]
        if name in overrides:
            value = format_value(key.type, key.parse(overrides[name]))
            entries.append(_entry(key, value, [Synonym(name, value, Source.GROUP), *inherited]))
        else:
            value = format_value(key.type, broker[key.synonyms[0]]) if key.synonyms else key.default
            entries.append(_entry(key, value, inherited))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, key in sorted(CLIENT_METRICS_KEYS.items()):
        if name in overrides:
            value = format_value(key.type, key.parse(overrides[name]))
            entries.append(_entry(key, value, [Synonym(name, value, Source.CLIENT_METRICS)]))
        else:
            entries.append(_entry(key, key.default, []))
    return entries


def _entry(key: Key, value: str | None, synonyms: list[Synonym]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    read_only = key.scope is Scope.BROKER and key.update is Update.READ_ONLY
    return ConfigEntry(
        key.name, value, read_only, source, key.sensitive, tuple(synonyms), int(key.type), key.doc
    )


def _inherited(broker: BrokerConfig, key: Key) -> list[Synonym]:
    return _synonyms(broker, key.synonyms[0], BROKER_KEYS[key.synonyms[0]]) if key.synonyms else []


def _synonyms(broker: BrokerConfig, name: str, key: Key) -> list[Synonym]:
    """The broker keys of a family that have a value, the strongest source first, from the key itself on."""
    family = key.synonyms or (name,)
    layers: tuple[tuple[Mapping[str, str | None], Source], ...] = (
        (broker.dynamic, Source.DYNAMIC_BROKER),
        (broker.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (broker.static, Source.STATIC_BROKER),
        ({n: BROKER_KEYS[n].default for n in family if n in BROKER_KEYS}, Source.DEFAULT),
    )
    found = [
        Synonym(n, None if key.sensitive else layer[n], source)
        for layer, source in layers
        for n in family
        if layer.get(n) is not None
    ]
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _broker_value(broker: BrokerConfig, key: Key) -> str | None:
    if key.sensitive:
        return None
    if key.name in BROKER_KEYS and not key.told_if_set:
        return format_value(key.type, broker[key.name])
    return next((layer[key.name] for layer in broker.layers() if key.name in layer), None)


def _source_of_default(broker: BrokerConfig, key: Key) -> Source:
    for name in key.synonyms:
        if name in broker.dynamic:
            return Source.DYNAMIC_BROKER
        if name in broker.dynamic_default:
            return Source.DYNAMIC_DEFAULT_BROKER
        if name in broker.static:
            return Source.STATIC_BROKER
    return Source.DEFAULT
