"""Apache Kafka with a listener for each way in: TLS, with a certificate of the client too, SASL, and both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.apache_kafka import KafkaServer
from bench.server import HOST
from moldau.runtime.real.free_ports import free_port
from spark.certificates import PASSWORD, Certificates, make_certificates
from spark.topics import TIMEOUT_S

USERS = {"alice": "alice's, = secret", "scram-user": "grüße"}
JAAS = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """A broker with a listener for each way in."""

    plaintext: str
    tls: str
    mutual_tls: str
    sasl: str
    sasl_tls: str
    certificates: Certificates


def escaped(text: str) -> str:
    """As a .properties file has it."""
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)


def listener_settings(ports: dict[str, int], certificates: Certificates) -> dict[str, object]:
    plain_users = " ".join(f'user_{name}="{escaped(password)}"' for name, password in USERS.items())
    logins = {
        "plain": f'{JAAS}.plain.PlainLoginModule required username="alice" password="x" {plain_users};',
        "scram-sha-256": f"{JAAS}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{JAAS}.scram.ScramLoginModule required;",
        "oauthbearer": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice;",
    }
    protocols = {
        "PLAINTEXT": "PLAINTEXT",
        "TLS": "SSL",
        "MUTUAL": "SSL",
        "SASL": "SASL_PLAINTEXT",
        "BOTH": "SASL_SSL",
        "CONTROLLER": "PLAINTEXT",
    }
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports['CONTROLLER']}",
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.location": certificates.key_store,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.location": certificates.trust_store,
        "ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener in ("sasl", "both"):
        for mechanism, login in logins.items():
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login
    return settings


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    certificates = make_certificates(folder)
    server = KafkaServer(folder / "kafka")
    ports = {name: free_port() for name in ("TLS", "MUTUAL", "SASL", "BOTH", "CONTROLLER")}
    server.settings |= listener_settings({"PLAINTEXT": server.port, **ports}, certificates)
    with server:
        add_scram_users(AdminClient({"bootstrap.servers": server.bootstrap_servers}))
        tls, mutual, sasl, both = (f"{HOST}:{ports[name]}" for name in ("TLS", "MUTUAL", "SASL", "BOTH"))
        yield Secured(server.bootstrap_servers, tls, mutual, sasl, both, certificates)


def add_scram_users(admin: AdminClient) -> None:
    for user, password in USERS.items():
        changes = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(TIMEOUT_S)
