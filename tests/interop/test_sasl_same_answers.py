"""What a SASL listener answers, byte by byte, beside Apache Kafka: right dialogues and wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.apache_kafka import KafkaServer
from interop.clients.security import LOGIN_MODULES
from interop.dialogue import AUTHENTICATE, HANDSHAKE, METADATA, VERSIONS, Dialogue
from interop.sasl_broker import PASSWORD, USER, SaslBroker, Tokens, run_moldau
from moldau.wire.frames import SIZE

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-kafka")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256")
"""In the order of a Java HashSet, in which Kafka tells them; Moldau keeps that of the settings."""
SALT = b"the same salt for both"
REAUTH_MS = "3600000"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, requires_kafka: Any) -> Iterator[tuple[int, int]]:
    """The ports of Moldau and of Apache Kafka."""
    tokens = Tokens()
    plain = f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}" user_bob="b";'
    scram = f"{LOGIN_MODULES['SCRAM-SHA-256']} required;"
    settings = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for name in ("short", "sasl_plaintext"):
        settings |= {
            f"listener.name.{name}.plain.sasl.jaas.config": plain,
            f"listener.name.{name}.scram-sha-256.sasl.jaas.config": scram,
            f"listener.name.{name}.scram-sha-512.sasl.jaas.config": scram,
        }
    settings["listener.name.sasl_plaintext.plain.connections.max.reauth.ms"] = REAUTH_MS
    moldau = SaslBroker(tmp_path_factory.mktemp("moldau"), tokens, **settings)
    run_moldau("user", "delete", USER, "--data", str(moldau.data))
    kafka = KafkaServer(tmp_path_factory.mktemp("kafka"))
    open_port = moldau.open_port + 1 if moldau.open_port < 60_000 else moldau.open_port - 1
    controller = kafka._node_settings()["controller.quorum.bootstrap.servers"]
    kafka.settings = {
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"SASL_PLAINTEXT://{kafka.bootstrap_servers},PLAINTEXT://127.0.0.1:{open_port},"
        f"CONTROLLER://{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **settings,
    }
    kafka.is_ready = lambda: _answers(open_port)  # type: ignore[method-assign]
    with moldau, kafka:
        for port in (moldau.open_port, open_port):
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                info = ScramCredentialInfo(mechanism, 4096)
                change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode(), SALT)
                for future in admin.alter_user_scram_credentials([change]).values():
                    future.result(timeout=20)
        yield moldau.port, kafka.port


def _answers(port: int) -> bool:
    from bench.server import count_brokers

    return count_brokers(port) > 0


ENDS = "the end"
NONCE = re.compile(rb"(r=YWx3YXlzIHRoZSBzYW1lIG5vbmNl)[^,]+")
SIGNATURE = re.compile(rb"v=[A-Za-z0-9+/=]+")


def good_plain(one: Dialogue) -> None:
    one.handshake("PLAIN")
    one.authenticate(f"\0{USER}\0{PASSWORD}".encode())


def unshared(answer: bytes | str) -> bytes | str:
    """Without what chance has put there, and the lengths of it."""
    if isinstance(answer, str) or (b"YWx3YXlz" not in answer and b"v=" not in answer):
        return answer
    said = NONCE.sub(rb"\1", answer)
    return SIGNATURE.sub(b"v=", said[said.find(b"r=") if b"r=" in said else said.find(b"v=") :])


PLAIN_MESSAGES = {
    "wrong password": f"\0{USER}\0wrong".encode(),
    "nobody": b"\0nobody\0wrong",
    "no name": b"\0\0wrong",
    "no password": f"\0{USER}\0".encode(),
    "no NUL": b"hello",
    "another identity": f"bob\0{USER}\0{PASSWORD}".encode(),
    "nothing": b"",
}
SCRAM_FIRST = {
    "nothing": b"",
    "channel binding": b"p=tls-unique,,n=alice,r=abc",
    "y": b"y,,n=alice,r=abc",
    "another identity": b"n,a=bob,n=alice,r=abc",
    "no message": b"hello",
}


def play(name: str, one: Dialogue) -> None:
    match name.split("/"):
        case ["api versions", version]:
            one.request(VERSIONS, int(version), client_software_name="a", client_software_version="1")
            one.heard[-1] = one.heard[-1][:12] and "some"  # what is served differs
            one.request(VERSIONS, int(version), client_software_name="a", client_software_version="1")
        case ["api versions of 99"]:
            one.ask(VERSIONS, 99, b"\0")
            one.handshake("PLAIN")
        case ["api versions of a bad software"]:
            one.request(VERSIONS, 3, client_software_name="-", client_software_version="1")
            one.handshake("PLAIN")
        case ["handshake", mechanism, version]:
            one.handshake(mechanism, int(version))
            if mechanism not in MECHANISMS:
                one.hear()
        case ["handshake twice"]:
            one.handshake("PLAIN")
            one.handshake("PLAIN")
            one.hear()
        case ["handshake v2"]:
            one.ask(HANDSHAKE, 2, b"\0\x05PLAIN")
        case ["metadata first"]:
            one.ask(METADATA, 1, b"\xff\xff\xff\xff")
        case ["metadata after versions"]:
            one.request(VERSIONS, 3, client_software_name="a", client_software_version="1")
            one.heard.clear()
            one.ask(METADATA, 1, b"\xff\xff\xff\xff")
        case ["authenticate first"]:
            one.authenticate(f"\0{USER}\0{PASSWORD}".encode())
        case ["authenticate v99"]:
            one.handshake("PLAIN")
            one.ask(AUTHENTICATE, 99, b"\0\0\0\0")
        case ["web"]:
            one.raw(b"GET / HTTP/1.1\r\n\r\n")
        case ["giant"]:
            one.raw(SIZE.pack(524_289))
        case ["negative"]:
            one.raw(SIZE.pack(-1))
        case ["giant message"]:
            one.handshake("PLAIN")
            one.raw(SIZE.pack(524_289))
        case ["plain", version]:
            one.handshake("PLAIN")
            one.authenticate(f"\0{USER}\0{PASSWORD}".encode(), int(version))
        case ["plain", what, version]:
            one.handshake("PLAIN")
            one.authenticate(PLAIN_MESSAGES[what], int(version))
            one.hear()
        case ["raw plain"]:
            one.handshake("PLAIN", 0)
            message = f"\0{USER}\0{PASSWORD}".encode()
            one.raw(SIZE.pack(len(message)) + message)
        case ["raw plain", what]:
            one.handshake("PLAIN", 0)
            one.raw(SIZE.pack(len(PLAIN_MESSAGES[what])) + PLAIN_MESSAGES[what])
        case ["scram", mechanism, version]:
            one.handshake(mechanism)
            one.scram(mechanism, USER, PASSWORD, int(version))
        case ["scram with a wrong password", mechanism]:
            one.handshake(mechanism)
            one.scram(mechanism, USER, "wrong")
            one.hear()
        case ["scram first", mechanism, what]:
            one.handshake(mechanism)
            one.authenticate(SCRAM_FIRST[what])
            one.hear()
        case ["handshake after"]:
            one.handshake("SCRAM-SHA-256")
            one.scram("SCRAM-SHA-256", USER, PASSWORD)
            one.handshake("SCRAM-SHA-256")
        case ["authenticate after"]:
            good_plain(one)
            one.authenticate(f"\0{USER}\0{PASSWORD}".encode())
        case ["again"]:
            good_plain(one)
            good_plain(one)
        case ["again at once"]:
            good_plain(one)
            good_plain(one)
            one.handshake("PLAIN")
        case ["again as another"]:
            good_plain(one)
            one.handshake("PLAIN")
            one.authenticate(b"\0bob\0b")
            one.hear()
        case ["again with a wrong password"]:
            good_plain(one)
            one.handshake("PLAIN")
            one.authenticate(f"\0{USER}\0wrong".encode())
            one.hear()
        case ["again with nonsense"]:
            good_plain(one)
            one.handshake("PLAIN")
            one.authenticate(b"nonsense")
            one.hear()
        case ["again by another mechanism"]:
            good_plain(one)
            one.handshake("SCRAM-SHA-256")
            one.authenticate(b"n,,n=alice,r=abc")
        case ["again, and metadata between"]:
            good_plain(one)
            one.handshake("PLAIN")
            one.ask(METADATA, 1, b"\xff\xff\xff\xff")
            one.heard[-1] = ENDS  # Kafka makes an answer of it first
        case _:
            raise AssertionError(name)


CASES = [
    *(f"api versions/{version}" for version in range(5)),
    "api versions of 99",
    "api versions of a bad software",
    *(f"handshake/{name}/{version}" for name in (*MECHANISMS, "GSSAPI", "", "plain") for version in (0, 1)),
    "handshake twice",
    "handshake v2",
    "metadata first",
    "metadata after versions",
    "authenticate first",
    "authenticate v99",
    "web",
    "giant",
    "negative",
    "giant message",
    *(f"plain/{version}" for version in range(3)),
    *(f"plain/{what}/{version}" for what in PLAIN_MESSAGES for version in (0, 2)),
    "raw plain",
    *(f"raw plain/{what}" for what in PLAIN_MESSAGES),
    *(f"scram/{mechanism}/{version}" for mechanism in MECHANISMS[1:] for version in (0, 2)),
    *(f"scram with a wrong password/{mechanism}" for mechanism in MECHANISMS[1:]),
    *(f"scram first/{mechanism}/{what}" for mechanism in MECHANISMS[1:] for what in SCRAM_FIRST),
    "handshake after",
    "authenticate after",
    "again",
    "again at once",
    "again as another",
    "again with a wrong password",
    "again with nonsense",
    "again by another mechanism",
    "again, and metadata between",
]


@pytest.mark.parametrize("name", CASES)
def test_moldau_answers_as_apache_kafka(both: tuple[int, int], name: str) -> None:
    heard = []
    for port in both:
        with closing(Dialogue(port)) as one:
            play(name, one)
            heard.append([unshared(answer) for answer in one.heard])
    assert heard[0] == heard[1]


def test_users_are_kept_salted(both: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Path(tmp_path_factory.getbasetemp())
    kept = b"".join(path.read_bytes() for path in folder.rglob("cluster.sqlite*") if path.is_file())
    assert b"SCRAM-SHA-256" in kept and PASSWORD.encode() not in kept
