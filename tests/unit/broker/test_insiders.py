"""What only brokers ask of each other is answered to brokers alone: the image of the cluster has secrets in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sasl_stage import PORT, Client, Gone, Stage, played

from moldau.broker.guard import Guard
from moldau.broker.insiders import Insiders
from moldau.config.broker import BrokerConfig
from moldau.security.acls import (
    CLUSTER_NAME,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    resource_key,
    text_of,
)
from moldau.security.authorizer import Authorizer
from moldau.sim.world import World
from moldau.wire.cluster import CLUSTER_KEY, CLUSTER_VERSION, FEED, pack_request, parse_answer
from moldau.wire.frames import request_frame

ENVELOPE = 58
OPEN_PORT = 9093
SHARED = {
    "listeners": f"SASL_PLAINTEXT://:{PORT}",
    "inter__broker__listener__name": "SASL_PLAINTEXT",
    "sasl__mechanism__inter__broker__protocol": "PLAIN",
}


async def fed(client: Client) -> int | None:
    """How many pieces of the cluster's image it gets; None where it is disconnected instead."""
    body = pack_request(FEED, {"broker": 77, "position": [-1, -1], "wait_ms": 10})
    client.send(request_frame(CLUSTER_KEY, CLUSTER_VERSION, 99, "test", body))
    try:
        answer, pieces = parse_answer(memoryview(await client.frame())[4:])
    except Gone:
        return None
    assert not answer["error"]
    return len(pieces)


def test_a_user_on_the_listener_of_clients_does_not_get_the_image_of_the_cluster() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.log_in("PLAIN")).error_code
        assert await fed(client) is None

    played(scene)


def test_a_user_on_the_listener_of_clients_forwards_nothing_in_the_name_of_others() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.log_in("PLAIN")).error_code
        with pytest.raises(Gone):
            await client.ask(
                ENVELOPE,
                0,
                request_data=b"",
                request_principal=b"User:admin",
                client_host_address=b"127.0.0.1",
            )

    played(scene)


def test_the_listener_of_brokers_serves_them() -> None:
    async def scene(stage: Stage) -> None:
        assert await fed(await stage.client(port=OPEN_PORT))

    played(scene)


def test_where_all_share_a_listener_with_sasl_only_the_name_of_the_brokers_is_served() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.log_in("PLAIN")).error_code
        assert await fed(client) is None
        broker = await stage.client()
        assert not (await broker.log_in("PLAIN", "admin", "admin's secret")).error_code
        assert await fed(broker)

    played(scene, **SHARED)


def test_a_broker_that_comes_by_another_name_is_one_of_the_super_users() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.log_in("PLAIN")).error_code
        assert await fed(client)

    played(scene, super__users="User:admin;User:alice", **SHARED)


def test_nobody_else_gets_in_among_brokers_that_have_a_listener_with_sasl_of_their_own() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.log_in("PLAIN")).error_code
        assert await fed(client) is None

    settings = SHARED | {"listeners": f"SASL_PLAINTEXT://:{PORT},PLAINTEXT://:{OPEN_PORT}"}
    played(scene, **settings)


# Certificates and ACLs

BROKER, CLIENT, NOBODY = "User:CN=broker", "User:CN=client", "User:ANONYMOUS"


def has(
    principal: str,
    listener: str = "SSL",
    *,
    listeners: str = "SSL://:9092",
    guard: Guard | None = None,
    **settings: str,
) -> bool:
    values = {
        "listeners": listeners,
        "log.dirs": "/data",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "broker.pem",
    }
    config = BrokerConfig.parse(values | {name.replace("__", "."): text for name, text in settings.items()})
    tls = SimpleNamespace(own_principal=lambda listener: BROKER if listener == "SSL" else None)
    with World(1) as world:
        clock = world.host("broker").runtime.clock
        connection: Any = SimpleNamespace(listener_name=listener, principal=principal, client_host="10.0.0.9")
        return Insiders(config, None, tls, guard, clock).has(connection)


def test_where_all_share_a_listener_with_certificates_only_that_of_the_brokers_is_served() -> None:
    for auth in ("required", "requested"):
        assert has(BROKER, ssl__client__auth=auth)
        assert not has(CLIENT, ssl__client__auth=auth)
        assert not has(NOBODY, ssl__client__auth=auth)
        assert has(CLIENT, ssl__client__auth=auth, super__users="User:admin;User:CN=client")


def test_where_nobody_can_prove_anything_everyone_may_be_a_broker() -> None:
    assert has(NOBODY, "PLAINTEXT", listeners="PLAINTEXT://:9092")
    assert has(NOBODY)


BOTH = "PLAINTEXT://:9092,SSL://:9093"


def test_brokers_with_a_listener_of_their_own_have_each_a_certificate() -> None:
    settings = {"ssl__client__auth": "required", "inter__broker__listener__name": "SSL"}
    assert has("User:CN=broker-2", listeners=BOTH, **settings)
    assert not has(NOBODY, "PLAINTEXT", listeners=BOTH, **settings)


def test_brokers_that_move_to_another_listener_are_known_by_their_certificate() -> None:
    settings = {"ssl__client__auth": "required", "inter__broker__listener__name": "PLAINTEXT"}
    assert has(BROKER, listeners=BOTH, **settings)
    assert not has(CLIENT, listeners=BOTH, **settings)


def guard_with(*entries: Entry) -> Guard:
    authorizer = Authorizer(allows_without_acls=True)
    key = resource_key(ResourcePattern(Resource.CLUSTER, Pattern.LITERAL, CLUSTER_NAME))
    acls = {key: {text_of(entry): "" for entry in entries}} if entries else {}
    for _ in authorizer.take_over(acls):
        pass
    with World(1) as world:
        return Guard(authorizer, world.host("broker").runtime.clock)


def test_a_super_user_among_the_clients_is_no_broker_unless_an_authorizer_says_so() -> None:
    settings = {"inter__broker__listener__name": "PLAINTEXT", "super__users": "User:admin"}
    assert not has("User:admin", listeners=BOTH, **settings)
    assert has("User:admin", listeners=BOTH, guard=guard_with(), **settings)


def test_that_there_is_no_acl_does_not_make_a_client_a_broker() -> None:
    settings = {"ssl__client__auth": "required", "inter__broker__listener__name": "PLAINTEXT"}
    entry = Entry(CLIENT, "*", Operation.CLUSTER_ACTION, Permission.ALLOW)
    assert not has(CLIENT, listeners=BOTH, guard=guard_with(), **settings)
    assert has(CLIENT, listeners=BOTH, guard=guard_with(entry), **settings)


def test_who_asks_in_vain_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(3):
            client = await stage.client()
            await client.log_in("PLAIN")
            assert await fed(client) is None

    played(scene)
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.broker.insiders"]
    assert len(told) == 1 and "'User:alice'" in told[0] and "super.users" in told[0]
