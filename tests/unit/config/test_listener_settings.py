"""The settings of one listener: which are known, which of several counts, and what is never shown."""

from __future__ import annotations

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.describe import describe_broker
from moldau.config.foreign import foreign_keys
from moldau.config.key import ConfigError, Password, Type
from moldau.config.listener_settings import ListenerKey, settings_of, split
from moldau.config.sources import parse_variables
from moldau.config.table import broker_key

LISTENERS = {
    "listeners": "INSIDE://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def test_a_listeners_own_setting_wins_over_the_brokers() -> None:
    config = BrokerConfig.parse(
        {**LISTENERS, "ssl.client.auth": "requested", "listener.name.outside.ssl.client.auth": "required"}
    )
    assert settings_of(config, "OUTSIDE")["ssl.client.auth"] == "required"
    assert settings_of(config, "INSIDE")["ssl.client.auth"] == "requested"
    assert settings_of(config, "INSIDE")["ssl.keystore.type"] == "JKS"
    assert settings_of(config, "OUTSIDE").is_own("ssl.client.auth")
    assert not settings_of(config, "INSIDE").is_own("ssl.client.auth")


def test_a_setting_of_one_broker_that_was_changed_while_it_runs_wins() -> None:
    config = BrokerConfig.parse({**LISTENERS, "listener.name.outside.ssl.keystore.location": "old.pem"})
    changed = config.with_dynamic({}, {"listener.name.outside.ssl.keystore.location": "new.pem"})
    assert settings_of(changed, "OUTSIDE")["ssl.keystore.location"] == "new.pem"


def test_a_mechanisms_setting_wins_over_the_listeners() -> None:
    config = BrokerConfig.parse(
        {
            **LISTENERS,
            "listener.name.outside.sasl.jaas.config": "for all",
            "listener.name.outside.scram-sha-256.sasl.jaas.config": "for SCRAM",
        }
    )
    settings = settings_of(config, "OUTSIDE")
    assert settings.of_mechanism("SCRAM-SHA-256")["sasl.jaas.config"].reveal() == "for SCRAM"
    assert settings.of_mechanism("PLAIN")["sasl.jaas.config"].reveal() == "for all"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("listener.name.a.ssl.key.password", ListenerKey("a", None, "ssl.key.password")),
        ("listener.name.a.plain.sasl.jaas.config", ListenerKey("a", "plain", "sasl.jaas.config")),
        (
            "listener.name.a-b_c.sasl.enabled.mechanisms",
            ListenerKey("a-b_c", None, "sasl.enabled.mechanisms"),
        ),
        ("listener.name.A.ssl.key.password", None),
        ("listener.name.a.log.dirs", None),
        ("listener.name.a", None),
        ("ssl.key.password", None),
    ],
)
def test_names_are_taken_apart(name: str, parts: ListenerKey | None) -> None:
    assert split(name) == parts


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("listener.name.outside.ssl.client.auht", "listener.name.outside.ssl.client.auth"),
        ("listener.name.OUTSIDE.ssl.client.auth", "listener.name.outside.ssl.client.auth"),
        ("listener.name.outside.plain.sasl.jaas.confg", "listener.name.outside.plain.sasl.jaas.config"),
    ],
)
def test_a_misspelt_setting_of_a_listener_is_refused_with_the_guess(name: str, meant: str) -> None:
    assert broker_key(name) is None
    for refuse in (foreign_keys, lambda names: BrokerConfig.parse(dict.fromkeys(names, "x"))):
        with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
            refuse([name])


def test_a_setting_that_somebody_elses_plugin_reads_is_left_out_of_a_kafka_file() -> None:
    assert foreign_keys(["listener.name.outside.acme.token.issuer"]) == [
        "listener.name.outside.acme.token.issuer"
    ]


def test_a_setting_of_a_listener_that_is_not_there_is_told() -> None:
    config = BrokerConfig.parse({**LISTENERS, "listener.name.otuside.ssl.client.auth": "required"})
    assert "listener.name.otuside.ssl.client.auth has no effect: there is no such listener" in config.warnings


def test_variables_name_a_listeners_settings() -> None:
    found = parse_variables(
        {
            "MOLDAU_LISTENER_NAME_OUTSIDE_SSL_CLIENT_AUTH": "required",
            "MOLDAU_LISTENER_NAME_OUTSIDE_SCRAM_SHA_512_SASL_JAAS_CONFIG": "x",
        }
    )
    assert found == (
        {
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.outside.scram-sha-512.sasl.jaas.config": "x",
        },
        [],
    )


def test_a_password_is_never_shown() -> None:
    config = BrokerConfig.parse(
        {
            **LISTENERS,
            "ssl.key.password": "sesame",
            "listener.name.outside.ssl.keystore.key": "-----BEGIN PRIVATE KEY----- sesame",
        }
    )
    password = config["ssl.key.password"]
    assert (password.reveal(), repr(password), f"{password}") == ("sesame", "[hidden]", "[hidden]")
    assert password == Password("sesame") != Password("other")
    for entry in describe_broker(config):
        assert "sesame" not in repr(entry)
        if entry.config_type == Type.PASSWORD:
            assert (entry.value, entry.is_sensitive) == (None, True)


def test_certificates_that_a_listener_with_sasl_does_not_ask_for_are_told() -> None:
    given = {
        "listeners": "OUTSIDE://:9093",
        "listener.security.protocol.map": "OUTSIDE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="secret" username="bob" '
            'password="secret";'
        ),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    line = (
        "ssl.client.auth is for listeners without SASL: set listener.name.outside.ssl.client.auth for OUTSIDE"
    )
    assert line in BrokerConfig.parse({**given, "ssl.client.auth": "required"}).warnings
    own = {"ssl.client.auth": "required", "listener.name.outside.ssl.client.auth": "required"}
    assert BrokerConfig.parse({**given, **own}).warnings == []
