"""What security costs: TLS beside Apache Kafka over TLS, and ACLs and quotas beside none.

Both brokers have a plaintext and an SSL listener with one ECDSA certificate, and take TLS 1.3 from the same client. A
connection is made anew each time, without a session to resume. With *ACLs and quotas* an authorizer decides by an ACL
for the topics' prefix, and every client has quotas that it never reaches.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench import raw_load
from bench.apache_kafka import KafkaServer, distribution
from bench.librdkafka import consume_all, consumer, produce_all, producer
from bench.measure import MB, Meter, Reading, WorkNotDone
from bench.server import HOST, MoldauServer, Server, Usage
from bench.topics import READY_TIMEOUT_S, fresh_topic
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.runtime.real.free_ports import free_port
from moldau.security.certificates import (
    SERIAL_BYTES,
    KeyKind,
    Role,
    certificate_pem,
    issue,
    new_authority,
    new_key,
    serial_of,
    store_pem,
)

NOTE = """\
*Over TLS*: both brokers have one ECDSA certificate, and the client speaks TLS 1.3 with them; a connection is made anew
each time, with nothing to resume, and asks one ApiVersions. *With ACLs and quotas*: an authorizer decides by an ACL for
the topics' prefix, and all clients have quotas that they never reach; *open*: the same broker without.
"""
VALUE_BYTES = 1000
TIMEOUT_S = 10
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
QUOTAS = "producer_byte_rate=1000000000000,consumer_byte_rate=1000000000000,request_percentage=100000"
GUARDED = {"authorizer.class.name": AUTHORIZERS[0], "allow.everyone.if.no.acl.found": "true"}


class TlsListener:
    """A certificate, and the port of a listener that shows it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        authority = new_authority("the benchmark's authority", new_key(KeyKind.ECDSA), now, _serial())
        broker = issue(
            authority,
            Role.BROKER,
            "broker",
            new_key(KeyKind.ECDSA),
            now,
            _serial(),
            hosts=[HOST, "localhost"],
        )
        self.port = free_port()
        self.ca, self.store = folder / "ca.pem", folder / "broker.pem"
        self.ca.write_bytes(certificate_pem(authority.certificate))
        self.store.write_bytes(store_pem(broker, authority.certificate))

    def settings(self) -> dict[str, object]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.store}

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


class TlsMoldau(MoldauServer):
    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        super().__init__(folder, settings)
        self.tls = TlsListener(folder)

    def command(self) -> Sequence[str]:
        settings = {
            "node.id": 1,
            "log.dirs": self.data,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},SSL://{self.tls.address}",
            "offsets.topic.replication.factor": 1,
            **self.tls.settings(),
            **self.settings,
        }
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return [super().command()[0], "broker", "--config", str(config)]


class TlsKafka(KafkaServer):
    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        super().__init__(folder, settings)
        self.tls = TlsListener(folder)

    def _node_settings(self) -> dict[str, object]:
        settings = super()._node_settings()
        return {
            **settings,
            **self.tls.settings(),
            "listeners": f"{settings['listeners']},SSL://{self.tls.address}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},SSL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
        }


SecureServer = TlsMoldau | TlsKafka
SERVERS: tuple[type[SecureServer], ...] = (TlsMoldau, TlsKafka)


@dataclass(frozen=True, slots=True)
class Door:
    """A broker as those see it who come in by its SSL listener."""

    server: SecureServer

    @property
    def bootstrap_servers(self) -> str:
        return self.server.tls.address

    def usage(self) -> Usage:
        return self.server.usage()


def over_tls(server: Server, total_bytes: int, handshakes: int) -> Iterator[Reading]:
    """Written and read as fast as the client can, then connected to again and again."""
    count, megabytes = total_bytes // VALUE_BYTES, total_bytes / MB
    assert isinstance(server, SecureServer)
    door = Door(server)
    trust = {"security_protocol": "SSL", "ssl_ca_location": str(server.tls.ca)}
    with fresh_topic(server) as topic:
        with Meter(server) as meter:
            produce_all(producer(door, **trust), topic, 1, count, secrets.token_bytes(VALUE_BYTES))
        yield Reading("produce over TLS, 1000 B", megabytes / meter.wall_s, "MB/s", more_is_better=True)
        yield Reading("broker CPU to produce over TLS, 1000 B", meter.cpu_s * 1000 / megabytes, "ms/MB")
        with Meter(server) as meter:
            consume_all(consumer(door, **trust), topic, 1, count)
        yield Reading("consume over TLS, 1000 B", megabytes / meter.wall_s, "MB/s", more_is_better=True)
        yield Reading("broker CPU to consume over TLS, 1000 B", meter.cpu_s * 1000 / megabytes, "ms/MB")
    context = ssl.create_default_context(cafile=str(server.tls.ca))
    with Meter(server) as meter:
        for _ in range(handshakes):
            _connect(context, server.tls)
    yield Reading("connect over TLS", meter.wall_s * 1000 / handshakes, "ms")
    yield Reading("broker CPU to connect over TLS", meter.cpu_s * 1e6 / handshakes, "us")


def _connect(context: ssl.SSLContext, listener: TlsListener) -> None:
    with (
        socket.create_connection((HOST, listener.port), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        secured.sendall(API_VERSIONS)
        if not secured.recv(4096):
            raise WorkNotDone("the broker has ended a connection over TLS")


def small_requests(server: Server, count: int, how: str) -> Iterator[Reading]:
    for reading in raw_load.small_requests(server, count):
        if reading.name != raw_load.FETCH_EMPTY:
            yield Reading(f"{reading.name}, {how}", reading.value, reading.unit)


def guard(server: Server) -> None:
    """ACLs by which all that follows is decided, and quotas for everyone."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    acls = [
        AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind, name, pattern in (
            (ResourceType.TOPIC, "bench-", ResourcePatternType.PREFIXED),
            (ResourceType.GROUP, "*", ResourcePatternType.LITERAL),
            (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL),
        )
    ]
    for future in admin.create_acls(acls).values():
        future.result(READY_TIMEOUT_S)
    distribution().run(
        "configs",
        *("--bootstrap-server", server.bootstrap_servers, "--alter", "--add-config", QUOTAS),
        *("--entity-type", "users", "--entity-default"),
    )


def _serial() -> int:
    return serial_of(secrets.token_bytes(SERIAL_BYTES))
