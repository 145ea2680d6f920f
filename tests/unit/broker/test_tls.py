"""A broker that speaks TLS: real clients, who they are, new certificates, and who is turned away."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import aiokafka
import kafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from certificates import CLIENT, SERVER, Authority, Issued
from moldau.broker import tls as broker_tls
from moldau.broker.tls import BrokerTls
from moldau.testing import Cluster

PATIENCE_S = 30.0
TOPIC = "t"
SET: dict[str, Any] = {"incremental_operation": AlterConfigOpType.SET}


class Folder:
    """An authority's files, as people have them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = Authority()
        self.write("ca.pem", self.authority.pem)
        self.issue("broker", "CN=broker,O=Acme")
        self.issue("alice", "CN=alice,O=Acme", hosts=(), usages=(CLIENT,))

    def __getitem__(self, name: str) -> str:
        return str(self.path / name)

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def issue(self, name: str, subject: str, **more: Any) -> Issued:
        issued = self.authority.issue(subject, **more)
        self.write(f"{name}.pem", issued.pem)
        self.write(f"{name}.crt", issued.chain_pem)
        self.write(f"{name}.key", issued.key_pem)
        return issued


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("certificates"))


def settings(folder: Folder, **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": folder["broker.pem"],
        "ssl.keystore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": folder["ca.pem"],
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Acme$/$1/,DEFAULT",
        **more,
    }


@pytest.fixture(scope="module")
def cluster(folder: Folder) -> Iterator[Cluster]:
    with Cluster(topics={TOPIC: 1}, config=settings(folder)) as cluster:
        yield cluster


def broker_of(cluster: Cluster) -> Any:
    (member,) = cluster._members.values()
    return member.broker


def port_of(cluster: Cluster, listener: str) -> int:
    port: int = broker_of(cluster).listeners[listener].address[1]
    return port


def librdkafka(folder: Folder, cluster: Cluster, listener: str = "SSL", **more: Any) -> dict[str, Any]:
    given = {
        "bootstrap.servers": f"127.0.0.1:{port_of(cluster, listener)}",
        "security.protocol": "ssl",
        "ssl.ca.location": folder["ca.pem"],
        "log_level": 0,
    }
    if listener == "MUTUAL":
        given |= {"ssl.certificate.location": folder["alice.crt"], "ssl.key.location": folder["alice.key"]}
    return {**given, **more}


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_confluent_kafka_produces_and_consumes(cluster: Cluster, folder: Folder, listener: str) -> None:
    producer = Producer(librdkafka(folder, cluster, listener))
    reports: list[Any] = []
    producer.produce(
        TOPIC, b"x" * 100_000, on_delivery=lambda error, message: reports.append((error, message))
    )
    producer.flush(PATIENCE_S)
    ((error, delivered),) = reports
    assert error is None
    consumer = Consumer({**librdkafka(folder, cluster, listener), "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, delivered.offset())])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"x" * 100_000
    consumer.close()


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_kafka_python_produces_and_consumes(cluster: Cluster, folder: Folder, listener: str) -> None:
    given: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{port_of(cluster, listener)}",
        "security_protocol": "SSL",
        "ssl_cafile": folder["ca.pem"],
    }
    if listener == "MUTUAL":
        given |= {"ssl_certfile": folder["alice.crt"], "ssl_keyfile": folder["alice.key"]}
    producer = kafka.KafkaProducer(**given)
    metadata = producer.send(TOPIC, b"y" * 50_000, partition=0).get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**given, consumer_timeout_ms=int(PATIENCE_S * 1000))
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek(kafka.TopicPartition(TOPIC, 0), metadata.offset)
    assert next(consumer).value == b"y" * 50_000
    consumer.close()


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_aiokafka_produces_and_consumes(cluster: Cluster, folder: Folder, listener: str) -> None:
    shown = {"certfile": folder["alice.crt"], "keyfile": folder["alice.key"]} if listener == "MUTUAL" else {}
    given: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{port_of(cluster, listener)}",
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=folder["ca.pem"], **shown),
    }

    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(**given) as producer:
            metadata = await producer.send_and_wait(TOPIC, b"z" * 50_000, partition=0)
        consumer = aiokafka.AIOKafkaConsumer(**given)
        async with consumer:
            consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
            consumer.seek(aiokafka.TopicPartition(TOPIC, 0), metadata.offset)
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        assert message.value == b"z" * 50_000

    asyncio.run(main())


def test_a_hundred_megabytes_go_in_and_come_out_whole(cluster: Cluster, folder: Folder) -> None:
    topic, size, count = "much", 1_000_000, 100
    cluster.create_topic(topic, 1)
    given = {"message.max.bytes": 2_000_000, "compression.type": "none", "linger.ms": 0}
    producer = Producer({**librdkafka(folder, cluster), **given, "queue.buffering.max.kbytes": 200_000})
    for number in range(count):
        producer.produce(topic, number.to_bytes(4, "big") * (size // 4))
    assert producer.flush(PATIENCE_S * 2) == 0
    consumer = Consumer(
        {**librdkafka(folder, cluster), "group.id": "much", "fetch.message.max.bytes": 20_000_000}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        assert message.value() == seen.to_bytes(4, "big") * (size // 4)
        seen += 1
    consumer.close()


@pytest.mark.parametrize(("listener", "principal"), [("SSL", "User:ANONYMOUS"), ("MUTUAL", "User:alice")])
def test_a_client_is_who_its_certificate_says(
    cluster: Cluster, folder: Folder, listener: str, principal: str
) -> None:
    admin = AdminClient(librdkafka(folder, cluster, listener))

    def is_known() -> bool:
        admin.list_topics(timeout=PATIENCE_S)
        served = list(broker_of(cluster)._server.connections)
        principals = {one.principal for one in served if one.listener_name == listener}
        assert principals <= {principal}
        return bool(principals)

    wait_for(is_known)


def test_with_sasl_a_certificate_opens_the_door_and_the_password_says_who_it_is(folder: Folder) -> None:
    more = {
        "listeners": "PLAINTEXT://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.mutual.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="secret";'
        ),
    }
    with Cluster(config=settings(folder, **more)) as cluster:
        login = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "bob",
            "sasl.password": "secret",
        }
        given = librdkafka(folder, cluster, "MUTUAL", **login)
        admin = AdminClient(given)

        def principals() -> set[str]:
            admin.list_topics(timeout=PATIENCE_S)
            return {one.principal for one in list(broker_of(cluster)._server.connections)}

        wait_for(lambda: principals() == {"User:bob"})
        with pytest.raises(KafkaException):
            AdminClient({**given, "sasl.password": "wrong"}).list_topics(timeout=2)
        del given["ssl.certificate.location"], given["ssl.key.location"]
        with pytest.raises(KafkaException):
            AdminClient(given).list_topics(timeout=2)
        with socket.create_connection(("127.0.0.1", port_of(cluster, "MUTUAL"))) as raw:
            context = ssl.create_default_context(cafile=folder["ca.pem"])
            context.load_cert_chain(folder["alice.crt"], folder["alice.key"])
            with context.wrap_socket(raw, server_hostname="localhost"):
                served = broker_of(cluster)._server.connections
                wait_for(lambda: any(one.is_silent for one in served))
                assert {one.principal for one in served if one.is_silent} == {"User:ANONYMOUS"}


def test_a_client_without_a_certificate_is_not_let_in_where_one_is_required(
    cluster: Cluster, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    given = librdkafka(folder, cluster, "MUTUAL")
    del given["ssl.certificate.location"], given["ssl.key.location"]
    with caplog.at_level(logging.WARNING), pytest.raises(KafkaException):
        AdminClient(given).list_topics(timeout=3)
    lines = [record.getMessage() for record in caplog.records if "was not let in" in record.getMessage()]
    assert len(lines) == 1
    assert "by the listener MUTUAL: the client shows no certificate" in lines[0]


def test_who_only_looks_whether_the_port_is_open_is_not_told_of(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    failed = broker_of(cluster).metrics.tls_handshakes_failed
    with caplog.at_level(logging.WARNING):
        socket.create_connection(("127.0.0.1", port_of(cluster, "SSL")), 10).close()
        wait_for(lambda: broker_of(cluster).metrics.tls_handshakes_failed > failed)
    assert not [record for record in caplog.records if "was not let in" in record.getMessage()]


def test_tls_that_is_too_old_is_refused(cluster: Cluster, folder: Folder) -> None:
    context = ssl.create_default_context(cafile=folder["ca.pem"])
    with pytest.deprecated_call():
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    address = ("127.0.0.1", port_of(cluster, "SSL"))
    with socket.create_connection(address) as raw, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(raw, server_hostname="localhost")


def test_who_speaks_plaintext_to_a_tls_listener_is_told_of_and_the_reverse(
    cluster: Cluster, folder: Folder
) -> None:
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(folder, cluster, "SSL") | {"security.protocol": "plaintext"}).list_topics(
            timeout=2
        )
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(folder, cluster, "PLAINTEXT")).list_topics(timeout=2)
    assert broker_of(cluster).metrics.tls_handshakes_failed > 0


def test_clients_that_open_and_say_nothing_hold_up_nobody_and_count_for_their_address(
    folder: Folder,
) -> None:
    with Cluster(config=settings(folder, **{"max.connections.per.ip": "40"})) as cluster:
        address = ("127.0.0.1", port_of(cluster, "SSL"))
        silent = [socket.create_connection(address) for _ in range(30)]
        start_s = time.monotonic()
        AdminClient(librdkafka(folder, cluster)).list_topics(timeout=PATIENCE_S)
        assert time.monotonic() - start_s < 5
        more = [socket.create_connection(address) for _ in range(30)]
        refused = 0
        for one in more:
            one.settimeout(2)
            try:
                refused += one.recv(1) == b""
            except ConnectionResetError:
                refused += 1
            except TimeoutError:
                break
        for one in (*silent, *more):
            one.close()
        assert refused or any(one.fileno() < 0 for one in more)
        wait_for(lambda: "127.0.0.1" not in broker_of(cluster)._server._per_ip)


def test_metrics_are_served_over_tls_where_they_have_a_certificate(folder: Folder) -> None:
    more = {
        "moldau.http.port": "0",
        "moldau.http.ssl.keystore.location": folder["broker.pem"],
        "moldau.http.ssl.client.auth": "required",
        "moldau.http.ssl.truststore.location": folder["ca.pem"],
    }
    with Cluster(config=settings(folder, **more)) as cluster:
        host, port = broker_of(cluster).http.address
        silent = [socket.create_connection((host, port)) for _ in range(100)]
        context = ssl.create_default_context(cafile=folder["ca.pem"])
        with pytest.raises((ssl.SSLError, ConnectionError)):
            urlopen(f"https://localhost:{port}/metrics", context=context, timeout=PATIENCE_S).read()
        context.load_cert_chain(folder["alice.crt"], folder["alice.key"])
        with urlopen(f"https://localhost:{port}/metrics", context=context, timeout=PATIENCE_S) as answer:
            assert b'expiry_timestamp_seconds{listener="moldau.http"}' in answer.read()
        with pytest.raises((URLError, ConnectionError)):
            urlopen(f"http://localhost:{port}/metrics", timeout=PATIENCE_S).read()
        for one in silent:
            one.close()


# ---- new certificates ----


@pytest.fixture
def own_folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def shown_by(cluster: Cluster, folder: Folder, listener: str = "SSL") -> bytes:
    """The certificate that a client is shown."""
    context = ssl.create_default_context(cafile=folder["ca.pem"])
    with (
        socket.create_connection(("127.0.0.1", port_of(cluster, listener))) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.chain_pem.decode())


def test_a_new_certificate_in_the_file_is_taken_up_and_a_broken_one_is_not(
    own_folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_tls, "LOOK_S", 0.05)
    with caplog.at_level(logging.INFO), Cluster(config=settings(own_folder)) as cluster:
        before = shown_by(cluster, own_folder)
        own_folder.write("broker.pem", b"-----BEGIN CERTIFICATE-----\nbroken")
        wait_for(lambda: "the certificate in force stays" in caplog.text)
        time.sleep(0.3)
        said = [r for r in caplog.records if "stays: listener SSL:" in r.getMessage()]
        assert len(said) == 1
        assert shown_by(cluster, own_folder) == before
        other = own_folder.issue("broker", "CN=another,O=Acme")
        wait_for(lambda: "DistinguishedName does not match" in caplog.text)
        assert shown_by(cluster, own_folder) == before
        own_folder.issue("broker", "CN=broker,O=Acme", lasts=timedelta(days=-1))
        wait_for(lambda: "the new certificate has expired" in caplog.text)
        assert shown_by(cluster, own_folder) == before
        renewed = own_folder.issue("broker", "CN=broker,O=Acme")
        wait_for(lambda: shown_by(cluster, own_folder) == der(renewed))
        assert der(other) != der(renewed)


@pytest.mark.parametrize("flaw", ["another authority", "for servers alone"])
def test_a_new_certificate_that_brokers_would_not_take_is_not_taken_up(
    own_folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flaw: str
) -> None:
    monkeypatch.setattr(broker_tls, "LOOK_S", 0.05)
    more = {
        "inter.broker.listener.name": "MUTUAL",
        "ssl.truststore.location": own_folder["ca.pem"],
    }
    with caplog.at_level(logging.INFO), Cluster(config=settings(own_folder, **more)):
        assert "cannot talk" not in caplog.text
        if flaw == "another authority":
            issued = Authority("Another").issue("CN=broker,O=Acme")
        else:
            issued = own_folder.authority.issue("CN=broker,O=Acme", usages=(SERVER,))
        own_folder.write("broker.pem", issued.pem)
        wait_for(lambda: "listener MUTUAL: brokers with the new certificate cannot talk" in caplog.text)
        time.sleep(0.2)
        assert caplog.text.count("brokers with the new certificate cannot talk") == 1


def test_a_new_certificate_is_taken_up_by_alter_configs(own_folder: Folder) -> None:
    with Cluster(config=settings(own_folder)) as cluster:
        renewed = own_folder.issue("renewed", "CN=broker,O=Acme")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port_of(cluster, 'PLAINTEXT')}"})
        changed = ConfigResource(ConfigResource.Type.BROKER, "1")
        changed.add_incremental_config(
            ConfigEntry("listener.name.ssl.ssl.keystore.location", own_folder["renewed.pem"], **SET)
        )
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(PATIENCE_S)
        wait_for(lambda: shown_by(cluster, own_folder) == der(renewed))
        shared = ConfigResource(ConfigResource.Type.BROKER, "1")
        shared.add_incremental_config(ConfigEntry("ssl.keystore.location", own_folder["renewed.pem"], **SET))
        for future in admin.incremental_alter_configs([shared]).values():
            with pytest.raises(KafkaException, match="only per-listener using the listener prefix"):
                future.result(PATIENCE_S)


def test_of_two_changes_in_a_row_the_later_one_stays(
    own_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first takes long to be made ready."""
    original = BrokerTls._made

    def made(tls: BrokerTls, settings: Any) -> Any:
        if settings["ssl.keystore.location"] == own_folder["first.pem"]:
            time.sleep(0.5)
        return original(tls, settings)

    with Cluster(config=settings(own_folder)) as cluster:
        monkeypatch.setattr(BrokerTls, "_made", made)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port_of(cluster, 'PLAINTEXT')}"})
        key = "listener.name.ssl.ssl.keystore.location"
        for name in ("first", "second"):
            issued = own_folder.issue(name, "CN=broker,O=Acme")
            changed = ConfigResource(ConfigResource.Type.BROKER, "1")
            changed.add_incremental_config(ConfigEntry(key, own_folder[f"{name}.pem"], **SET))
            for future in admin.incremental_alter_configs([changed]).values():
                future.result(PATIENCE_S)
        wait_for(lambda: shown_by(cluster, own_folder) == der(issued))
        time.sleep(0.7)
        assert shown_by(cluster, own_folder) == der(issued)


def test_a_certificate_that_expires_soon_is_told_of(
    own_folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    issued = own_folder.issue("broker", "CN=broker,O=Acme", lasts=timedelta(days=3))
    with caplog.at_level(logging.WARNING), Cluster(config=settings(own_folder)) as cluster:
        lines = [r.getMessage() for r in caplog.records if "expires in" in r.getMessage()]
        assert "the certificate of listener SSL expires in 3.0 days" in lines
        samples = [s for s in broker_of(cluster).exposed.samples() if s and "expiry" in s.name]
        ((_, when),) = [pair for pair in samples[0].values if "SSL" in pair[0]]
        assert when == issued.certificate.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ssl.keystore.location": "/nowhere/broker.pem"}, "/nowhere/broker.pem cannot be read"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "does not begin with a rule"),
        ({"listener.name.mutual.ssl.truststore.location": ""}, "whose certificates are good"),
    ],
)
def test_a_broker_does_not_start_with_less_than_was_asked_for(
    folder: Folder, more: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words), Cluster(config=settings(folder, **more)):
        pass
