"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, through the codecs in all
versions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)

from .admin_broker import AdminBroker, versions

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1


@pytest.fixture
def broker() -> AdminBroker:
    broker = AdminBroker(log_retention_hours="2", compression_type="zstd", sasl_jaas_config="secret")
    broker.create("a", cleanup_policy=" compact , delete ", flush_ms="+7")
    return broker


def describe(
    broker: AdminBroker,
    type_: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> Any:
    resource = SimpleNamespace(resource_type=type_, resource_name=name, configuration_keys=keys or None)
    (result,) = broker.ask(
        describe_configs,
        version,
        resources=(resource,),
        include_synonyms=synonyms,
        include_documentation=documentation,
    ).results
    return result


def shown(result: Any) -> dict[str, tuple[str | None, int, list[tuple[str, str | None, int]]]]:
    assert result.error_code is ErrorCode.none, result.error_message
    return {
        c.name: (c.value, c.config_source, [(s.name, s.value, s.source) for s in c.synonyms])
        for c in result.configs
    }


@pytest.mark.parametrize("version", versions(describe_configs))
def test_a_topics_settings_are_told_with_source_and_synonyms(broker: AdminBroker, version: int) -> None:
    settings = shown(describe(broker, TOPIC, "a", version=version))
    assert len(settings) == 33
    assert settings["flush.ms"] == ("7", 1, [("flush.ms", "7", 1)])
    assert settings["cleanup.policy"] == (
        "compact,delete",
        1,
        [("cleanup.policy", "compact,delete", 1), ("log.cleanup.policy", "delete", 5)],
    )
    assert settings["compression.type"] == (
        "zstd",
        4,
        [("compression.type", "zstd", 4), ("compression.type", "producer", 5)],
    )
    assert settings["min.cleanable.dirty.ratio"] == (
        "0.5",
        5,
        [("log.cleaner.min.cleanable.ratio", "0.5", 5)],
    )
    # As Kafka: the hours are in force, and not listed while log.retention.ms is not set.
    assert settings["retention.ms"] == ("7200000", 5, [])


def test_a_dynamic_setting_of_the_broker_shows_in_its_topics(broker: AdminBroker) -> None:
    alter(broker, BROKER, "", ("log.retention.ms", SET, "9"))
    alter(broker, BROKER, "1", ("log.retention.ms", SET, "8"))
    synonyms = [("log.retention.ms", "8", 2), ("log.retention.ms", "9", 3), ("log.retention.hours", "2", 4)]
    synonyms.append(("log.retention.hours", "168", 5))
    assert shown(describe(broker, TOPIC, "a"))["retention.ms"] == ("8", 2, synonyms)
    assert shown(describe(broker, BROKER, "1"))["log.retention.ms"] == ("8", 2, synonyms)
    assert shown(describe(broker, BROKER, "")) == {
        "log.retention.ms": ("9", 3, [("log.retention.ms", "9", 3)])
    }


def test_only_the_keys_asked_for_are_told_and_the_rest_only_on_request(broker: AdminBroker) -> None:
    (config,) = describe(broker, TOPIC, "a", "flush.ms", "nope", synonyms=False).configs
    assert (config.name, config.synonyms, config.documentation) == ("flush.ms", (), None)
    assert (config.config_type, config.read_only, config.is_sensitive) == (5, False, False)
    (config,) = describe(broker, TOPIC, "a", "flush.ms", documentation=True).configs
    assert "disk" in config.documentation


def test_a_broker_tells_its_settings_but_no_secrets(broker: AdminBroker) -> None:
    result = describe(broker, BROKER, "1")
    settings = shown(result)
    assert settings["log.retention.hours"][:2] == ("2", 4)
    assert settings["log.segment.bytes"][:2] == ("1073741824", 5)
    assert settings["sasl.jaas.config"] == (None, 4, [("sasl.jaas.config", None, 4)])
    read_only = {config.name: config.read_only for config in result.configs}
    assert read_only["log.retention.hours"] and read_only["listeners"]
    assert not read_only["log.retention.ms"]


@pytest.mark.parametrize(
    ("type_", "name", "code", "message"),
    [
        (TOPIC, "absent", ErrorCode.unknown_topic_or_partition, ""),
        (
            TOPIC,
            "",
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            BROKER,
            "7",
            ErrorCode.invalid_request,
            "Unexpected broker id, expected 1 or empty string, but received 7",
        ),
        (BROKER, "x", ErrorCode.invalid_request, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", ErrorCode.invalid_request, "Broker id must not be empty"),
        (LOGGER, "7", ErrorCode.invalid_request, "Unexpected broker id, expected 1 but received 7"),
        (METRICS, "", ErrorCode.invalid_request, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.invalid_request, "Group name must not be empty"),
    ],
)
def test_a_resource_that_cannot_be_described_gets_kafkas_answer(
    broker: AdminBroker, type_: int, name: str, code: ErrorCode, message: str
) -> None:
    result = describe(broker, type_, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, ())


def test_groups_and_client_metrics_start_from_defaults(broker: AdminBroker) -> None:
    alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    group = shown(describe(broker, GROUP, "g"))
    assert len(group) == 17
    assert group["consumer.session.timeout.ms"] == (
        "50000",
        8,
        [("consumer.session.timeout.ms", "50000", 8), ("group.consumer.session.timeout.ms", "45000", 5)],
    )
    assert group["share.auto.offset.reset"] == ("latest", 5, [("share.auto.offset.reset", "latest", 5)])
    alter(broker, METRICS, "m", ("interval.ms", SET, "1000"))
    metrics = shown(describe(broker, METRICS, "m"))
    assert metrics["interval.ms"] == ("1000", 7, [("interval.ms", "1000", 7)])
    assert metrics["match"] == ("", 5, [])


def alter(
    broker: AdminBroker,
    type_: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = tuple(SimpleNamespace(name=k, config_operation=o, value=v) for k, o, v in changes)
    resource = SimpleNamespace(resource_type=type_, resource_name=name, configs=configs)
    (response,) = broker.ask(
        incremental_alter_configs, version, resources=(resource,), validate_only=validate_only
    ).responses
    return response


@pytest.mark.parametrize("version", versions(incremental_alter_configs))
def test_single_settings_change_in_every_version(broker: AdminBroker, version: int) -> None:
    changes = (("flush.ms", DELETE, None), ("retention.ms", SET, "5"))
    validated = alter(broker, TOPIC, "a", *changes, version=version, validate_only=True)
    assert validated.error_code is ErrorCode.none
    assert "flush.ms" in broker.image.topics["a"].configs
    response = alter(broker, TOPIC, "a", *changes, version=version)
    assert (response.error_code, response.resource_type, response.resource_name) == (
        ErrorCode.none,
        TOPIC,
        "a",
    )
    assert broker.image.topics["a"].configs == {"cleanup.policy": " compact , delete ", "retention.ms": "5"}


@pytest.mark.parametrize("version", versions(alter_configs))
def test_all_settings_are_replaced_in_every_version_of_the_older_request(
    broker: AdminBroker, version: int
) -> None:
    configs = (SimpleNamespace(name="retention.ms", value="5"),)
    resources = (
        SimpleNamespace(resource_type=TOPIC, resource_name="a", configs=configs),
        SimpleNamespace(resource_type=LOGGER, resource_name="1", configs=()),
    )
    good, bad = broker.ask(alter_configs, version, resources=resources, validate_only=False).responses
    assert good.error_code is ErrorCode.none
    assert (bad.error_code, bad.error_message) == (ErrorCode.invalid_request, "Unknown resource type 8")
    assert broker.image.topics["a"].configs == {"retention.ms": "5"}


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("moldau.test.administration")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_the_level_of_a_logger_is_shown_and_set(broker: AdminBroker, logger: logging.Logger) -> None:
    assert (
        alter(broker, LOGGER, "1", (logger.name, SET, "FATAL"), validate_only=True).error_code
        is ErrorCode.none
    )
    assert logger.level == logging.NOTSET
    alter(broker, LOGGER, "1", (logger.name, SET, "FATAL"))
    assert logger.level == logging.CRITICAL
    assert shown(describe(broker, LOGGER, "1"))[logger.name] == ("FATAL", 6, [])
    alter(broker, LOGGER, "1", (logger.name, DELETE, None))
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("1", ("no.such", SET, "INFO"), "Logger no.such does not exist!"),
        ("1", ("root", DELETE, None), "Removing the log level of the root logger is not allowed"),
        ("1", ("root", 2, "INFO"), "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        (
            "1",
            ("root", SET, "FOO"),
            "Cannot set the log level of root to FOO as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("7", ("root", SET, "INFO"), "Unexpected node id. Expected 1, but received 7"),
        ("", ("root", SET, "INFO"), "Node id must be an integer, but it is: "),
    ],
)
def test_a_logger_that_cannot_be_set_gets_kafkas_answer(
    broker: AdminBroker, name: str, change: tuple[str, int, str | None], message: str
) -> None:
    level = logging.root.level
    assert alter(broker, LOGGER, name, change).error_message == message
    assert logging.root.level == level


def listed(broker: AdminBroker, version: int, *types: int) -> Any:
    return broker.ask(list_config_resources, version, resource_types=types)


def test_everything_that_carries_settings_is_listed_by_kind(broker: AdminBroker) -> None:
    alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    alter(broker, METRICS, "m", ("interval.ms", SET, "1000"))
    everything = [(r.resource_type, r.resource_name) for r in listed(broker, 1).config_resources]
    assert everything == [(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    assert [r.resource_name for r in listed(broker, 1, GROUP, GROUP).config_resources] == ["g"]
    assert [r.resource_name for r in listed(broker, 0).config_resources] == ["m"]
    assert listed(broker, 1, 64).error_code is ErrorCode.unsupported_version
