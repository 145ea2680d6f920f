"""Clients of confluent-kafka with no more than the rights that they need, on a broker with ACLs.

All are User:ANONYMOUS from 127.0.0.1; the administrator comes from another address of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from golden.recorder import Kafka
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.testing import Cluster
from unit.broker.handlers.test_authorization import ELSEWHERE, HERE, Asker, acl, create

pytestmark = pytest.mark.slow

TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
ALL, READ, WRITE, DESCRIBE, IDEMPOTENT_WRITE = 2, 3, 4, 8, 12
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"authorizer.class.name": AUTHORIZERS[0], "allow.everyone.if.no.acl.found": "true"}
    with Cluster(topics={"orders": 1, "copies": 1}, config=settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Kafka:
    asker = Asker(cluster.bootstrap_servers, ELSEWHERE)
    names = ((CLUSTER, "kafka-cluster"), (TOPIC, "*"), (GROUP, "*"), (TXN, "*"))
    create(asker, *(acl(ALL, resource, name, ELSEWHERE) for resource, name in names))
    return asker


@pytest.fixture
def grant(admin: Asker) -> Iterator[Callable[..., None]]:
    def give(*rights: tuple[int, int, str]) -> None:
        create(admin, *(acl(operation, resource, name, HERE) for operation, resource, name in rights))
        time.sleep(0.2)

    yield give
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": HERE,
        "operation": 1,
        "permission_type": 1,
    }
    admin.ask("DeleteAcls", 3, {"filters": [everything]})
    time.sleep(0.2)


def produced(cluster: Cluster, topic: str, **settings: Any) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "message.timeout.ms": 10_000,
            "log_level": 0,
            **settings,
        }
    )
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    return outcomes[0] if outcomes else KafkaError(KafkaError._FATAL)


def consumer_of(cluster: Cluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def first_of(consumer: Consumer) -> bytes | int:
    """The first value, or the code of the first error."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is not None:
            error = message.error()
            return message.value() if error is None else error.code()
    raise AssertionError("neither a message nor an error")


def test_a_producer_needs_no_more_than_write(cluster: Cluster, grant: Callable[..., None]) -> None:
    grant((WRITE, TOPIC, "orders"))
    assert produced(cluster, "orders") is None
    assert produced(cluster, "orders", **{"enable.idempotence": True}) is None
    error = produced(cluster, "copies")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.usefixtures("admin")
def test_without_a_right_clients_are_told_which_one_they_lack(cluster: Cluster) -> None:
    error = produced(cluster, "orders")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = consumer_of(cluster, "readers")
    consumer.subscribe(["orders"])
    denied = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert first_of(consumer) in denied
    consumer.close()
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "log_level": 0}
    )
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_group_needs_to_read_its_topic_and_itself(cluster: Cluster, grant: Callable[..., None]) -> None:
    grant((WRITE, TOPIC, "orders"), (READ, TOPIC, "orders"), (READ, GROUP, "readers"))
    assert produced(cluster, "orders") is None
    consumer = consumer_of(cluster, "readers")
    consumer.subscribe(["orders"])
    assert first_of(consumer) == b"value"
    (committed,) = consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    assert committed.error is None
    consumer.close()


def test_a_copy_in_transactions_needs_its_transactional_id_too(
    cluster: Cluster, grant: Callable[..., None]
) -> None:
    grant(
        (READ, TOPIC, "orders"),
        (WRITE, TOPIC, "copies"),
        (READ, GROUP, "copier"),
        (WRITE, TXN, "copier"),
    )
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "copier", "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    consumer = consumer_of(cluster, "copier")
    consumer.subscribe(["orders"])
    assert first_of(consumer) == b"value"
    producer.begin_transaction()
    producer.produce("copies", b"copy")
    producer.send_offsets_to_transaction(
        [TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S)
    assert consumer.committed([TopicPartition("orders", 0)], timeout=TIMEOUT_S)[0].offset == 1
    consumer.close()


def test_users_with_passwords_have_the_rights_of_their_own_names() -> None:
    """On three brokers, whose own certificate makes them super users, as is the first user."""
    with Cluster(
        brokers=3, topics={"orders": 1}, secure=True, config={"authorizer.class.name": AUTHORIZERS[0]}
    ) as secure:
        names = ("alice", "bob")
        for name in names:
            secure.create_user(name, f"{name} is here")
        alice, bob = (secure.client_settings(user=name, password=f"{name} is here") for name in names)
        admin = AdminClient(secure.client_settings())

        def outcome() -> KafkaError | None:
            return produced(secure, "orders", **alice)

        error = outcome()
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        binding = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([binding]).values():
            future.result(TIMEOUT_S)
        time.sleep(1)
        assert outcome() is None
        error = produced(secure, "orders", **bob)
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
