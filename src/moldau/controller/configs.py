"""Decisions on configurations: what AlterConfigs and IncrementalAlterConfigs may do, with Kafka's answers.
Pure.

A change is decided resource by resource: the settings that the resource would have are put together and
checked whole; the record says what they are then. A resource or a key that is named twice is refused. Loggers
are not decided here: their levels belong to a process and are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import CONFIGS_PER_RESOURCE_MAX
from moldau.config.broker import BrokerConfig, dynamic_names, without_listener
from moldau.config.group_keys import GROUP_BOUNDS
from moldau.config.key import ConfigError, Key, Type, check_length, java_list
from moldau.config.table import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    broker_key,
    unknown_broker_key,
)
from moldau.config.topic import check_topic_overrides
from moldau.controller.names import check_topic_name
from moldau.controller.rules import MIN_ISR
from moldau.controller.slices import Portion, Slices, times_named
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import NOWHERE, ConfigChanged, ConfigResource, Position, ResourceType

NAMED_TWICE = "Each resource must appear at most once."
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
LOCKED_OUT = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration "
    "Invalid dynamic configuration"
)
"""A broker may start with no room for clients; one that serves them may not be told to have none."""


RESOURCE_WEIGHT = 5
BROKER_WEIGHT = 50
"""What it takes to check a resource's settings, in partitions: of a broker all are put together anew."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One key of one resource; the operation is a plain number, as it came, because it may be none of
    ours.
    """

    name: str
    value: str | None
    operation: int = Operation.SET


class Alterations(NamedTuple):
    """What a request asks of one resource. `replace`: these settings and no others (AlterConfigs)."""

    type: int
    name: str
    changes: Sequence[Alteration]
    replace: bool = False


class AlterOutcome(NamedTuple):
    type: int
    name: str
    error: ErrorCode
    message: str | None
    record: ConfigChanged | None
    position: Position = NOWHERE


def decide_alter(
    image: ClusterImage, config: BrokerConfig, resources: Sequence[Alterations]
) -> Slices[list[AlterOutcome]]:
    times = yield from times_named(resources, lambda resource: (resource.type, resource.name))
    portion = Portion()
    outcomes: list[AlterOutcome] = []
    for asked in resources:
        weight = BROKER_WEIGHT if asked.type == ResourceType.BROKER else RESOURCE_WEIGHT
        if portion.take(weight + len(asked.changes)):
            yield
        try:
            if times[asked.type, asked.name] > 1:
                raise _bad_request(NAMED_TWICE)
            record = _alter(image, config, asked)
            outcomes.append(AlterOutcome(asked.type, asked.name, ErrorCode.none, None, record))
        except KafkaError as error:
            outcomes.append(AlterOutcome(asked.type, asked.name, error.code, error.message, None))
    return outcomes


def _bad_request(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, reason)


def _bad_config(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, reason)


def check_keys_and_values(changes: Sequence[Alteration]) -> None:
    """What holds for every kind of resource, and is looked at first."""
    if len(changes) > CONFIGS_PER_RESOURCE_MAX:
        raise _bad_request(f"More than {CONFIGS_PER_RESOURCE_MAX} configs were given.")
    if len({change.name for change in changes}) < len(changes):
        raise _bad_request("Error due to duplicate config keys")
    nulls = [c.name for c in changes if c.value is None and c.operation != Operation.DELETE]
    if nulls:
        raise _bad_request(f"Null value not supported for : {', '.join(nulls)}")
    for change in changes:
        try:
            check_length(change.name, change.value or "")
        except ConfigError as error:
            raise _bad_config(str(error)) from error


def _alter(image: ClusterImage, config: BrokerConfig, asked: Alterations) -> ConfigChanged | None:
    check_keys_and_values(asked.changes)
    match asked.type:
        case ResourceType.TOPIC:
            return _alter_topic(image, config, asked)
        case ResourceType.BROKER:
            return _alter_broker(image, config, asked)
        case ResourceType.GROUP:
            return _alter_group(image, config, asked)
        case ResourceType.CLIENT_METRICS:
            return _alter_client_metrics(image, asked)
    raise _bad_request(f"Unknown resource type {asked.type}")


def _alter_topic(image: ClusterImage, config: BrokerConfig, asked: Alterations) -> ConfigChanged | None:
    if not asked.name:
        raise _bad_request("Default topic resources are not allowed.")
    configs = _changed(image, asked, TOPIC_KEYS)
    check_topic_name(asked.name)
    if asked.name not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{asked.name}' does not exist.")
    try:
        check_topic_overrides(config, configs)
    except ConfigError as error:
        raise _bad_config(str(error)) from error
    return _record(image, asked, configs)


def _alter_broker(image: ClusterImage, config: BrokerConfig, asked: Alterations) -> ConfigChanged | None:
    per_broker = bool(asked.name)
    if per_broker:
        asked = asked._replace(name=str(_broker_id(image, asked.name)))
    fixed, own = dynamic_names([change.name for change in asked.changes], per_broker=per_broker)
    if fixed:
        raise _bad_request(f"Cannot update these configs dynamically: {java_list(fixed)}")
    if shared := without_listener(change.name for change in asked.changes):
        raise _bad_request(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{java_list(shared)}"
        )
    if own:
        _check_values(asked.changes)  # Kafka looks at them first
        raise _bad_request(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{java_list(own)}"
        )
    keys = {}
    for change in asked.changes:
        key = broker_key(change.name)
        if key is None and change.operation != Operation.DELETE:
            raise _bad_request(str(unknown_broker_key(change.name)))
        if key is not None:
            keys[change.name] = key
    configs = _changed(image, asked, keys)
    try:
        if per_broker:
            changed = config.with_dynamic(config.dynamic_default, configs)
        else:
            changed = config.with_dynamic(configs, config.dynamic)
    except ConfigError as error:
        raise _bad_request(str(error)) from error
    if changed["max.connections"] == 0 != config["max.connections"]:
        raise _bad_request(LOCKED_OUT)
    _check_min_isr(image, asked, configs)
    return _record(image, asked, configs)


def _check_values(changes: Sequence[Alteration]) -> None:
    for change in changes:
        key = broker_key(change.name)
        if key is not None and change.operation == Operation.SET:
            try:
                key.parse(change.value or "")
            except ConfigError as error:
                raise _bad_request(str(error)) from error


def _check_min_isr(image: ClusterImage, asked: Alterations, configs: Mapping[str, str]) -> None:
    """It is one value for the whole cluster, and always there (`min_isr`)."""
    is_named = any(change.name == MIN_ISR for change in asked.changes)
    if asked.name:
        if is_named:
            raise _bad_config(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    elif MIN_ISR not in configs and (is_named or MIN_ISR in _current(image, asked)):
        raise _bad_config(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def _broker_id(image: ClusterImage, name: str) -> int:
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal():
        raise _bad_request(f"Node id must be an integer, but it is: {name}")
    if int(name) not in image.registered:
        expected = " or ".join(map(str, sorted(image.registered)))
        raise _bad_request(f"Unexpected broker id, expected {expected}, but received {int(name)}")
    return int(name)


def _alter_group(image: ClusterImage, config: BrokerConfig, asked: Alterations) -> ConfigChanged | None:
    if not asked.name:
        raise _bad_request("Default group resources are not allowed.")
    configs = _changed(image, asked, GROUP_KEYS)
    try:
        check_group_configs(config, configs)
    except ConfigError as error:
        raise _bad_config(str(error)) from error
    return _record(image, asked, configs)


def check_group_configs(config: BrokerConfig, configs: Mapping[str, str]) -> None:
    for name in configs:
        if name not in GROUP_KEYS:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {name: key.parse(configs[name]) for name, key in GROUP_KEYS.items() if name in configs}
    for name, least, most in GROUP_BOUNDS:
        if name not in values:
            continue
        if least is not None and values[name] < config[least]:
            raise ConfigError(f"{name} must be greater than or equal to {least}")
        if most is not None and values[name] > config[most]:
            raise ConfigError(f"{name} must be less than or equal to {most}")


def _alter_client_metrics(image: ClusterImage, asked: Alterations) -> ConfigChanged | None:
    if not asked.name:
        raise _bad_request("Subscription name can't be empty")
    configs = _changed(image, asked, CLIENT_METRICS_KEYS)
    for name in configs:
        if name not in CLIENT_METRICS_KEYS:
            raise _bad_request(f"Unknown client metrics configuration: {name}")
    try:
        values = {name: CLIENT_METRICS_KEYS[name].parse(text) for name, text in configs.items()}
    except ConfigError as error:
        raise _bad_config(str(error)) from error
    interval_ms = values.get("interval.ms", INTERVAL_MS_MIN)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise _bad_request(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )
    return _record(image, asked, configs)


def _changed(image: ClusterImage, asked: Alterations, keys: Mapping[str, Key]) -> dict[str, str]:
    """The settings that the resource would have; they are not checked yet."""
    if asked.replace:
        return {change.name: change.value or "" for change in asked.changes}
    configs = dict(_current(image, asked))
    for change in asked.changes:
        value = change.value or ""
        if change.operation == Operation.SET:
            configs[change.name] = value
        elif change.operation == Operation.DELETE:
            configs.pop(change.name, None)
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            operation = Operation(change.operation)
            before = configs.get(change.name)
            key = keys.get(change.name)
            if key is None or key.type is not Type.LIST:
                raise _bad_config(_no_list(asked.type, operation, change.name))
            configs[change.name] = _changed_list(key, before, value, operation)
        else:
            raise KafkaError(ErrorCode.unknown_server_error)
    return configs


def _no_list(type_: int, operation: Operation, name: str) -> str:
    if type_ == ResourceType.BROKER:
        return f"Config value {operation.name.lower()} is not allowed for config key: {name}"
    return f"Can't {operation.name} to key {name} because its type is not LIST."


def _changed_list(key: Key, before: str | None, value: str, operation: Operation) -> str:
    # A list that is not set yet starts from its default, not from the broker's.
    items = _items(key.default or "" if before is None else before)
    named = _items(value)
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys((*items, *named)))
    gone = set(named)
    return ",".join(item for item in items if item not in gone)


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _current(image: ClusterImage, asked: Alterations) -> Mapping[str, str]:
    return image.configs(ConfigResource(ResourceType(asked.type), asked.name))


def _record(image: ClusterImage, asked: Alterations, configs: dict[str, str]) -> ConfigChanged | None:
    if configs == _current(image, asked):
        return None
    return ConfigChanged(ConfigResource(ResourceType(asked.type), asked.name), configs)
