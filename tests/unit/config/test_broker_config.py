"""A broker's settings: layers, synonyms, listeners, and what is refused with which words."""

from __future__ import annotations

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.topic import check_topic_overrides, topic_config


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.parse(settings)
    return str(refused.value)


def test_a_broker_without_settings_has_kafkas_defaults() -> None:
    config = BrokerConfig.parse({})
    assert config.node_id == 1
    assert config["socket.request.max.bytes"] == 104857600
    assert config["log.retention.ms"] is None
    assert config.topic_defaults.retention_ms == 7 * 24 * 3_600_000
    assert config.topic_defaults.max_message_bytes == 1048588


def test_the_finest_unit_that_is_set_gives_the_retention() -> None:
    assert BrokerConfig.parse({"log.retention.hours": "2"}).topic_defaults.retention_ms == 7_200_000
    minutes = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert BrokerConfig.parse(minutes).topic_defaults.retention_ms == 180_000
    assert BrokerConfig.parse({**minutes, "log.retention.ms": "5"}).topic_defaults.retention_ms == 5
    assert BrokerConfig.parse({"log.retention.ms": "-5"}).topic_defaults.retention_ms == -1


def test_flush_ms_falls_back_to_the_schedulers_interval() -> None:
    assert BrokerConfig.parse({"log.flush.scheduler.interval.ms": "7"}).topic_defaults.flush_ms == 7
    both = {"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "9"}
    assert BrokerConfig.parse(both).topic_defaults.flush_ms == 9


def test_a_dynamic_setting_is_stronger_than_the_start_and_the_brokers_own_than_the_clusters() -> None:
    start = BrokerConfig.parse({"message.max.bytes": "1"})
    cluster = start.with_dynamic({"message.max.bytes": "2"}, {})
    own = start.with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert [c.topic_defaults.max_message_bytes for c in (start, cluster, own)] == [1, 2, 3]


def test_a_topics_own_setting_is_stronger_than_the_brokers() -> None:
    config = BrokerConfig.parse({"log.segment.bytes": "2000000"})
    assert topic_config(config, {}) is config.topic_defaults
    assert topic_config(config, {"flush.ms": "1"}).segment_bytes == 2_000_000
    assert topic_config(config, {"segment.bytes": "3000000"}).segment_bytes == 3_000_000


def test_internal_segment_bytes_goes_below_the_floor() -> None:
    config = topic_config(
        BrokerConfig.parse({}), {"segment.bytes": "1048576", "internal.segment.bytes": "100"}
    )
    assert config.segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"foo": "1", "segment.ms": "y"}, "Unknown topic config name: foo"),
        (
            {"retention.ms": "x", "segment.ms": "y"},
            "Invalid value y for configuration segment.ms: Not a number of type LONG",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_a_topics_settings_are_checked_in_kafkas_order(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_topic_overrides(BrokerConfig.parse({}), overrides)
    assert str(refused.value) == reason


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    assert refusal({"log.retention.hour": "1"}) == (
        "unknown broker key 'log.retention.hour': did you mean 'log.retention.hours'?"
    )
    assert refusal({"wholly.different": "1"}) == "unknown broker key 'wholly.different'"
    assert "the broker's default for it is 'log.retention.ms'" in refusal({"retention.ms": "1"})


def test_kafkas_own_server_properties_are_accepted_with_a_line_for_each_that_has_no_effect() -> None:
    config = BrokerConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "3",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "num.network.threads": "3",
            "listener.name.plaintext.ssl.keystore.password": "secret",
        }
    )
    assert config.node_id == 3
    assert [endpoint.name for endpoint in config.listeners] == ["PLAINTEXT"]
    assert config.advertised_listeners == {"PLAINTEXT": ("localhost", 9092)}
    silent = {line.split(" ", 1)[0] for line in config.warnings}
    assert silent == {
        "process.roles",
        "controller.quorum.bootstrap.servers",
        "num.network.threads",
    }


def test_log_dirs_wins_over_log_dir() -> None:
    assert BrokerConfig.parse({"log.dir": "one"}).log_dirs == ["one"]
    assert BrokerConfig.parse({"log.dir": "one", "log.dirs": "two,three"}).log_dirs == ["two", "three"]


def test_broker_id_is_the_older_name_of_node_id() -> None:
    assert BrokerConfig.parse({"broker.id": "4"}).node_id == 4
    assert "they name the same thing" in refusal({"broker.id": "4", "node.id": "5"})
    assert "at least 0" in refusal({"broker.id": "-3"})


def test_listeners_may_be_several_and_ipv6() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "INSIDE://[::1]:0,OUTSIDE://0.0.0.0:9094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert [(e.name, e.host, e.port) for e in config.listeners] == [
        ("INSIDE", "::1", 0),
        ("OUTSIDE", "0.0.0.0", 9094),
    ]


def test_brokers_talk_by_the_listener_that_is_named_or_has_the_protocols_name() -> None:
    listeners = {
        "listeners": "OUTSIDE://:9092,PLAINTEXT://:9093",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    assert BrokerConfig.parse(listeners).inter_broker_listener.name == "OUTSIDE"
    by_protocol = BrokerConfig.parse({**listeners, "security.inter.broker.protocol": "PLAINTEXT"})
    assert by_protocol.inter_broker_listener.name == "PLAINTEXT"
    by_name = BrokerConfig.parse({**listeners, "inter.broker.listener.name": "PLAINTEXT"})
    assert by_name.inter_broker_listener.name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"listeners": "SASL_SSL://:9093"}, "Kerberos is not served"),
        ({"inter.broker.listener.name": "INSIDE"}, "must be a listener name defined in listeners"),
        (
            {"security.inter.broker.protocol": "SSL"},
            "valid options based on currently configured listeners are",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
        ),
        ({"listeners": "localhost:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "in brackets"),
        ({"listeners": "PLAINTEXT://:70000"}, "is not NAME://HOST:PORT"),
        ({"listeners": "OTHER://:9092"}, "no security protocol for listener 'OTHER'"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": ""}, "at least one"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable"),
        ({"advertised.listeners": "OTHER://host:9092"}, "not among the listeners"),
        ({"log.dirs": "a,,b"}, "a data folder without a name"),
        ({"log.dir": ""}, "a data folder without a name"),
        ({"authorizer.class.name": "x.Y"}, "x.Y is none of Moldau's"),
        ({"principal.builder.class": "x.Y"}, "x.Y is none of Moldau's"),
        ({"listener.name.plaintext.principal.builder.class": "x.Y"}, "x.Y is none of Moldau's"),
        ({"super.users": "User:a;bob"}, "principalType:principalName but got bob"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1)"),
        ({"num.partitions": "0"}, "Value must be at least 1"),
        ({"num.io.threads": "many"}, "Not a number of type INT"),
        ({"queued.max.requests": "0"}, "Value must be at least 1"),
        ({"listener.name.inside.ssl.allow.dn.changes": "perhaps"}, "either true or false"),
    ],
)
def test_what_a_broker_cannot_do_is_refused_at_the_start(settings: dict[str, str], part: str) -> None:
    assert part in refusal(settings)
