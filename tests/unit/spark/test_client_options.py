"""Options written for Kafka's Java client do the same here, or are refused with what to use instead."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from moldau.security.certificates import KeyKind, Pair, certificate_pem, new_authority, new_key
from moldau.spark.blocks.client_settings import client_of
from moldau.spark.blocks.settings import ReadSettings
from moldau.spark.client_options import (
    JAVA_CLASSES,
    NO_COUNTERPART,
    Role,
    check_client_config,
    client_config,
    kafka_options,
)
from moldau.spark.source.options import parse_options
from moldau.spark.topic_sink.options import SinkOptions


def test_the_kafka_options_are_those_with_the_prefix_without_it() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "KAFKA.Acks": "all", "topic": "t"}
    assert kafka_options(options) == {"bootstrap.servers": "a:1", "acks": "all"}


def test_what_both_clients_know_passes_as_it_is() -> None:
    same = {"bootstrap.servers": "a:1", "acks": "all", "linger.ms": "5", "compression.type": "zstd"}
    assert client_config(same, "producer") == same


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"batch.size": "0"}, {"batch.size": "1"}),
        ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ({"receive.buffer.bytes": "65536"}, {"socket.receive.buffer.bytes": "65536"}),
        ({"max.block.ms": "5000"}, {"topic.metadata.propagation.max.ms": "5000"}),
        (
            {"metadata.max.age.ms": "60000"},
            {"topic.metadata.refresh.interval.ms": "60000", "metadata.max.age.ms": "180000"},
        ),
        (
            {"compression.type": "gzip", "compression.gzip.level": "9", "compression.zstd.level": "3"},
            {"compression.type": "gzip", "compression.level": "9"},
        ),
        ({"compression.type": "zstd", "compression.zstd.level": "22"}, {"compression.level": "12"}),
        ({"partitioner.ignore.keys": "true"}, {"partitioner": "random"}),
        ({"security.protocol": "SSL"}, {"security.protocol": "ssl"}),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_names_and_units_that_differ_are_translated(java: dict[str, str], ours: dict[str, str]) -> None:
    config = client_config(java, "producer")
    assert config.items() >= ours.items()
    check_client_config(config, "producer")


def test_a_request_timeout_is_the_wait_for_any_answer_and_the_producers_word_to_the_broker() -> None:
    options = {"request.timeout.ms": "600000"}
    assert client_config(options, "consumer") == {"socket.timeout.ms": "300000"}
    assert client_config(options, "producer") == {
        "socket.timeout.ms": "300000",
        "request.timeout.ms": "600000",
    }


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        (
            {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        ({"ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "PEM"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
    ],
)
def test_key_stores_that_openssl_reads_are_taken(java: dict[str, str], ours: dict[str, str]) -> None:
    assert client_config(java, "consumer") == ours


@pytest.fixture(scope="module")
def authority() -> Pair:
    return new_authority("authority", new_key(KeyKind.ECDSA), datetime.now(UTC), 1)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", None])
def test_a_trust_store_is_what_its_content_says(authority: Pair, tmp_path: Path, kind: str | None) -> None:
    """As for Java: keytool makes PKCS12 whatever the file is called, and the type JKS reads it."""
    store, text = tmp_path / "trust.jks", certificate_pem(authority.certificate)
    trusted = pkcs12.PKCS12Certificate(authority.certificate, b"ca")
    secret = serialization.BestAvailableEncryption(b"changeit")
    store.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [trusted], secret))
    options = {"ssl.truststore.location": str(store), "ssl.truststore.password": "changeit"}
    options |= {"ssl.truststore.type": kind} if kind else {}
    assert client_config(options, "consumer") == {"ssl.ca.pem": text.decode()}
    with pytest.raises(ValueError, match=r"trust.jks cannot be read.* or has another password") as refusal:
        client_config(options | {"ssl.truststore.password": "guessed"}, "consumer")
    assert "guessed" not in str(refusal.value)
    store.write_bytes(text)
    assert client_config(options, "consumer") == {"ssl.ca.location": str(store)}


def test_java_key_stores_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(
        ValueError, match=r"^Kafka option 'ssl.truststore.location' .*`keytool -importkeystore"
    ):
        client_config({"ssl.truststore.location": str(store)}, "producer")
    with pytest.raises(ValueError, match=r"^Kafka option 'ssl.keystore.location' is not supported .* PEM"):
        client_config({"ssl.keystore.location": str(store)}, "producer")
    with pytest.raises(ValueError, match=r"cannot be read: /nowhere/store.jks: No such file"):
        client_config({"ssl.truststore.location": "/nowhere/store.jks"}, "producer")


@pytest.mark.parametrize(
    ("jaas", "ours"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s\'x=1";',
            {"sasl.username": "ann", "sasl.password": "s'x=1"},
        ),
        (
            "org.apache.kafka.common.security.scram.ScramLoginModule required\n username='ann'\n password=secret ;",
            {"sasl.username": "ann", "sasl.password": "secret"},
        ),
        (
            r'a.b.ScramLoginModule required username="ann" password="\"back\\slash\" \101";  // as Java reads it',
            {"sasl.username": "ann", "sasl.password": '"back\\slash" A'},
        ),
        (
            "a.b.OAuthBearerLoginModule required clientId='me' clientSecret='x';",
            {
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "x",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
        (
            'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="me@HERE";',
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "me@HERE"},
        ),
    ],
)
def test_user_and_password_are_taken_out_of_the_jaas_config(jaas: str, ours: dict[str, str]) -> None:
    assert client_config({"sasl.jaas.config": jaas}, "producer") == ours


def test_a_jaas_config_of_another_kind_is_refused_without_repeating_its_secrets() -> None:
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config") as refusal:
        client_config({"sasl.jaas.config": "com.example.Login required password='secret';"}, "producer")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("package", ["", "secured."])
def test_kafkas_own_way_to_tokens_is_librdkafkas(package: str) -> None:
    handler = f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    config = client_config({"sasl.login.callback.handler.class": handler}, "consumer")
    assert config == {"sasl.oauthbearer.method": "oidc"}


def test_a_misspelt_jaas_config_is_refused_without_repeating_its_secrets() -> None:
    misspelt = "a.b.PlainLoginModule required username='ann' password='secret'"
    with pytest.raises(
        ValueError, match=r"^Kafka option 'sasl.jaas.config' .* not terminated by semi-"
    ) as refusal:
        client_config({"sasl.jaas.config": misspelt}, "producer")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("name", sorted(JAVA_CLASSES))
def test_names_of_java_classes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^Kafka option '{name}' is not supported: "):
        client_config({name: "com.example.Thing"}, "producer")


@pytest.mark.parametrize("name", sorted(NO_COUNTERPART))
def test_what_tunes_the_java_client_alone_is_left_out_and_said(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert client_config({name: "1"}, "consumer") == {}
    assert name in caplog.text


@pytest.mark.parametrize("role", ["producer", "consumer", "admin"])
def test_a_name_that_nobody_knows_is_refused(role: Role) -> None:
    with pytest.raises(ValueError, match=r"^Kafka options are not usable: No such .*no\.such\.thing"):
        check_client_config(client_config({"no.such.thing": "1"}, role), role)
    check_client_config({"bootstrap.servers": "127.0.0.1:1"}, role)


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"^Kafka option 'buffer\.memory' must be a number, not 'much'$"):
        client_config({"buffer.memory": "much"}, "producer")


def test_a_password_is_in_no_repr() -> None:
    login = 'a.b.PlainLoginModule required username="ann" password="secret";'
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login,
    }
    config = client_config(kafka_options(given), "consumer")
    assert config["sasl.password"] == "secret"
    holders = [
        parse_options(given | {"subscribe": "t"}, is_stream=True),
        SinkOptions.of(given, streaming=True),
        ReadSettings("a:1", None, config),
        client_of(config | {"ssl.key.pem": "secret"}),
    ]
    assert all("secret" not in repr(holder) for holder in holders)
