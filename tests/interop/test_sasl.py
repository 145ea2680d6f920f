"""Foreign clients on a listener with SASL, by each mechanism: they write, read, join groups and administer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer
from kafka.errors import KafkaError as KafkaPythonError

from interop.clients import CLIENTS, Message
from interop.clients.java import JavaTools
from interop.sasl_broker import MECHANISMS, PASSWORD, USER, SaslBroker, Tokens, run_moldau

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-sasl")]

IN_PYTHON = ("confluent-kafka", "kafka-python", "aiokafka")
JAVA_COUNTS = 3
WRONG = "not-her-secret"


@pytest.fixture(scope="module")
def tokens() -> Iterator[Tokens]:
    tokens = Tokens()
    with tokens.served():
        yield tokens


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, tokens: Tokens) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl"), tokens) as broker:
        yield broker


def works(broker: SaslBroker, name: str, mechanism: str) -> None:
    client = CLIENTS[name](broker.bootstrap_servers, broker.security(mechanism))
    topic = f"{name}-{mechanism}"
    creator = CLIENTS["confluent-kafka"](broker.bootstrap_servers, broker.security("PLAIN"))
    creator.create(topic)
    values = [b"%d" % number for number in range(JAVA_COUNTS)]
    client.produce(topic, [Message(value, b"key") for value in values])
    assert [one.value for one in client.consume(topic, offset=0, count=JAVA_COUNTS)] == values
    assert client.read_in_group(topic, f"group of {name} {mechanism}", JAVA_COUNTS) == values
    assert topic in client.topics()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", IN_PYTHON)
def test_clients_in_python_work_by_each_mechanism(broker: SaslBroker, name: str, mechanism: str) -> None:
    works(broker, name, mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_works_by_each_mechanism(broker: SaslBroker, requires_kafka: Any, mechanism: str) -> None:
    works(broker, JavaTools.name, mechanism)


def test_kcat_works_by_plain(broker: SaslBroker, requires_kcat: str) -> None:
    """Its packages are made without curl, which tokens need, and with a librdkafka before 2.6.1, whose SCRAM sends its
    nonce twice: as Kafka's since 3.7.2 (CVE-2024-56128), the broker refuses that."""
    works(broker, "kcat", "PLAIN")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_that_it_is_not_who_it_says(broker: SaslBroker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = broker.security(mechanism, password=WRONG).librdkafka()
    if mechanism == "OAUTHBEARER":
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}

    def token(_config: str) -> tuple[str, float]:
        expired = broker.tokens.token(-1000)
        return expired, 4e9

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "error_cb": errors.append,
            **settings,
            **({"oauth_cb": token} if mechanism == "OAUTHBEARER" else {}),
        }
    )
    for _ in range(50):
        producer.poll(0.2)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            break
    (text, *_) = [error.str() for error in errors if error.code() == KafkaError._AUTHENTICATION]
    if mechanism == "PLAIN":
        assert "Authentication failed: Invalid username or password" in text
    elif mechanism != "OAUTHBEARER":
        assert f"due to invalid credentials with SASL mechanism {mechanism}" in text
    else:
        assert "invalid_token" in text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_in_python_are_refused_with_a_wrong_password(broker: SaslBroker, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as AioKafkaError

    security = broker.security(mechanism, password=WRONG, token=broker.tokens.token(aud="others"))
    with pytest.raises(KafkaPythonError):
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            api_version_auto_timeout_ms=3000,
            **security.kafka_python(),
        ).topics()

    async def aio() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=3000, **security.aiokafka()
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        asyncio.run(aio())


def test_clients_begin_their_sessions_again(tmp_path: Path, tokens: Tokens) -> None:
    """librdkafka, and kafka-python, which connects anew: neither loses a message."""
    with SaslBroker(tmp_path, tokens, **{"connections.max.reauth.ms": "1500"}) as broker:
        security = broker.security("SCRAM-SHA-256")
        CLIENTS["confluent-kafka"](broker.bootstrap_servers, security).create("topic")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **security.librdkafka()}
        producer = Producer(settings)
        failed: list[KafkaError] = []
        for number in range(50):
            producer.produce(
                "topic", b"%d" % number, on_delivery=lambda error, _: error and failed.append(error)
            )
            producer.poll(0.1)
        assert producer.flush(20) == 0 and not failed
        values = CLIENTS["kafka-python"](broker.bootstrap_servers, security).consume(
            "topic", offset=0, count=50
        )
        assert [one.value for one in values] == [b"%d" % number for number in range(50)]
    printed = (broker.folder / "stderr.txt").read_bytes()
    assert b"expired" not in printed and b"authentication has failed" not in printed


def test_a_client_without_sasl_gets_nowhere(broker: SaslBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def admin_of(broker: SaslBroker) -> AdminClient:
    settings = broker.security("PLAIN").librdkafka()
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **settings})


def outcome(admin: AdminClient, change: Any) -> str:
    """An error's name, or nothing."""
    (future,) = admin.alter_user_scram_credentials([change]).values()
    try:
        future.result(timeout=20)
    except KafkaException as refused:
        return str(refused.args[0].name())
    return ""


def test_users_are_made_shown_and_removed_by_another_admin_client(broker: SaslBroker) -> None:
    admin = admin_of(broker)
    weak = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4095)
    dear = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 16385)
    good = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    assert outcome(admin, UserScramCredentialUpsertion("carol", weak, b"c")) == "UNACCEPTABLE_CREDENTIAL"
    assert outcome(admin, UserScramCredentialUpsertion("carol", dear, b"c")) == "UNACCEPTABLE_CREDENTIAL"
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    assert outcome(admin, deletion) == "RESOURCE_NOT_FOUND"
    assert outcome(admin, UserScramCredentialUpsertion("carol", good, b"carol's")) == ""

    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(timeout=20)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    assert set(admin.describe_user_scram_credentials().result(timeout=20)) == {USER, "carol"}

    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "carol",
        "sasl.password": "carol's",
    }
    assert AdminClient(settings).list_topics(timeout=10).brokers
    assert outcome(admin, deletion) == ""
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)


def test_kafkas_own_tool_makes_users(broker: SaslBroker, requires_kafka: Any) -> None:
    tool = JavaTools(broker.bootstrap_servers, broker.security("PLAIN"))
    eve = ("--entity-type", "users", "--entity-name", "eve")
    tool.run("configs", "--alter", *eve, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=her-own]")
    shown = tool.run("configs", "--describe", *eve).stdout
    assert "SCRAM-SHA-512=iterations=8192" in shown
    security = replace(broker.security("SCRAM-SHA-512", password="her-own"), user="eve")
    assert CLIENTS["confluent-kafka"](broker.bootstrap_servers, security).topics() is not None
    tool.run("configs", "--alter", *eve, "--delete-config", "SCRAM-SHA-512")
    assert "eve" not in run_moldau("user", "list", *way_to(broker))


def way_to(broker: SaslBroker) -> list[str]:
    """Of the command line."""
    options = [f"-X{key}={value}" for key, value in broker.security("SCRAM-SHA-256").librdkafka().items()]
    return ["--bootstrap", broker.bootstrap_servers, *options]


def test_the_command_line_makes_users_of_a_running_cluster(broker: SaslBroker) -> None:
    way = way_to(broker)
    made = run_moldau("user", "create", "dave", "--password-file", "-", *way, stdin="d\n")
    assert made == "dave: created\n"
    assert "dave" in run_moldau("user", "list", *way)
    assert run_moldau("user", "delete", "dave", *way) == "dave: deleted\n"
    assert "dave" not in run_moldau("user", "list", *way)


def test_no_password_is_in_the_settings_that_an_admin_client_is_told(broker: SaslBroker) -> None:
    admin = admin_of(broker)
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    told = future.result(timeout=20)
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert told[name].value is None and told[name].is_sensitive
    assert not any(PASSWORD in str(entry.value) for entry in told.values())


def test_no_password_or_key_is_in_what_the_broker_prints_or_keeps(broker: SaslBroker, tmp_path: Path) -> None:
    printed = b"".join(path.read_bytes() for path in broker.folder.glob("std*.txt"))
    kept = b"".join(path.read_bytes() for path in broker.data.glob("cluster*") if path.is_file())
    for secret in (PASSWORD, "carol's", WRONG):
        assert secret.encode() not in printed + kept
    assert b"stored_key" not in printed
