"""Foreign clients over TLS and with SASL: they produce, read in groups, write transactions and administer. G1."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from interop.clients import CLIENTS, Client, Message
from interop.clients.security import MECHANISMS
from interop.secured import (
    LISTENERS,
    PASSWORD,
    USER,
    Papers,
    SecuredKafka,
    SecuredMoldau,
    SecuredServer,
    TokenServer,
)

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-security")]

NEEDS = {"kcat": "requires_kcat", "java-tools": "requires_kafka"}
WAYS = [
    (listener, mechanism)
    for listener, protocol in LISTENERS.items()
    if listener != "OPEN"
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("secured")
    papers = Papers(folder / "papers")
    kind: type[SecuredServer] = SecuredMoldau
    if request.config.getoption("--target") == "kafka":
        request.getfixturevalue("requires_kafka")
        kind = SecuredKafka
    with kind(folder / "broker", papers) as broker:
        _add_users(broker.bootstrap_servers)
        yield broker


def _add_users(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in SCRAM.values():  # a request may name a user once
        change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(timeout=20)


@pytest.fixture(scope="module")
def tokens(server: SecuredServer) -> Iterator[TokenServer]:
    giver = TokenServer(server.doors.papers)
    yield giver
    giver.close()


@pytest.mark.parametrize(
    ("name", "listener", "mechanism"),
    [
        (name, listener, mechanism)
        for name, client in CLIENTS.items()
        for listener, mechanism in WAYS
        if mechanism is None or mechanism in client.mechanisms
    ],
)
def test_a_client_does_all_that_it_does_without_security(
    request: pytest.FixtureRequest,
    server: SecuredServer,
    tokens: TokenServer,
    name: str,
    listener: str,
    mechanism: str | None,
) -> None:
    if name in NEEDS:
        request.getfixturevalue(NEEDS[name])
    client = CLIENTS[name](server.doors.address(listener), server.doors.security(listener, mechanism, tokens))
    topic = f"{name}-{listener}-{mechanism or 'none'}".lower().replace("_", "-")
    administrator: Client = (
        client if client.administers else CLIENTS["confluent-kafka"](server.bootstrap_servers)
    )
    administrator.create(topic)
    values = [b"one", b"two", b"three"]
    client.produce(topic, [Message(value, b"key") for value in values])
    if client.transacts:
        client.transact(topic, [b"whole"] * 2, f"{topic}-transaction")
        values += [b"whole"] * 2
    assert client.read_in_group(topic, f"{topic}-group", len(values)) == values
    assert topic in client.topics()


def test_several_clients_of_each_listener_work_at_the_same_time(
    server: SecuredServer, tokens: TokenServer
) -> None:
    def work(way: tuple[str, str | None]) -> int:
        client = CLIENTS["confluent-kafka"](server.doors.address(way[0]), server.doors.security(*way, tokens))
        topic = f"at-once-{way[0]}-{way[1]}".lower().replace("_", "-")
        client.create(topic)
        client.produce(topic, [Message(b"x" * 1000) for _ in range(2000)])
        return len(client.read_in_group(topic, topic, 2000))

    with ThreadPoolExecutor(len(WAYS)) as workers:
        assert list(workers.map(work, WAYS)) == [2000] * len(WAYS)
