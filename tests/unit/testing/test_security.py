"""`Cluster(secure=True)`: TLS and a password for every client, and between brokers TLS."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from moldau.cli.client_file import client_settings as read_settings
from moldau.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(secure=True, topics={"orders": 1}) as running:
        yield running


def produced(settings: dict[str, object], topic: str) -> None:
    producer = Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0


def is_let_in(settings: dict[str, object]) -> bool:
    try:
        AdminClient(settings | {"log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def test_only_who_has_the_authority_and_the_password_comes_in(cluster: Cluster) -> None:
    settings = cluster.client_settings()
    produced(settings, "orders")
    assert not is_let_in({"bootstrap.servers": cluster.bootstrap_servers})
    assert not is_let_in(settings | {"sasl.password": "guessed"})
    assert not is_let_in({name: value for name, value in settings.items() if name != "ssl.ca.location"})


def test_every_client_is_told_in_its_own_words(cluster: Cluster) -> None:
    producer = KafkaProducer(**cluster.client_settings("kafka-python"))
    producer.send("orders", b"value").get(20)
    producer.close()

    async def send() -> None:
        async with AIOKafkaProducer(**cluster.client_settings("aiokafka")) as producer:
            await producer.send_and_wait("orders", b"value")

    asyncio.run(send())
    java = "\n".join(f"{name}={value}" for name, value in cluster.client_settings("java").items())
    produced(dict(read_settings(java)), "orders")
    with pytest.raises(ValueError, match="not for 'sarama'"):
        cluster.client_settings("sarama")


def test_users_have_passwords_of_their_own_which_can_be_changed(cluster: Cluster) -> None:
    cluster.create_user("alice", "first")
    assert is_let_in(cluster.client_settings(user="alice", password="first"))
    cluster.create_user("alice", "second")
    assert is_let_in(cluster.client_settings(user="alice", password="second"))
    assert not is_let_in(cluster.client_settings(user="alice", password="first"))
    with pytest.raises(ValueError, match="comes with a password"):
        cluster.client_settings(user="alice")


def test_a_restart_changes_nothing_for_clients(cluster: Cluster) -> None:
    before = cluster.client_settings()
    cluster.restart()
    assert cluster.client_settings() == before
    produced(before, "orders")


def test_it_goes_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Cluster(secure=True) as running:
        assert os.path.exists(running.client_settings()["ssl.ca.location"])
        first = running.client_settings()["sasl.password"]
    assert list(tmp_path.iterdir()) == []
    with running:
        assert running.client_settings()["sasl.password"] != first
        produced(running.client_settings(), "orders")


def test_three_brokers_replicate_over_tls_through_a_kill() -> None:
    with Cluster(secure=True, brokers=3, topics={"orders": 1}) as running:
        produced(running.client_settings(), "orders")
        assert running.in_sync("orders") == [1, 2, 3]
        first = running.leader("orders")
        assert first is not None
        running.kill(first)
        assert running.wait_for_leader("orders") != first
        produced(running.client_settings(), "orders")
        running.start(first)
        running.wait_in_sync()


def test_with_an_authorizer_the_first_user_and_the_brokers_may_do_everything() -> None:
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Cluster(secure=True, brokers=2, topics={"orders": 1}, config=authorizer) as running:
        running.create_user("alice", "a secret")
        seen = [
            set(AdminClient(settings).list_topics(timeout=10).topics)
            for settings in (
                running.client_settings(),
                running.client_settings(user="alice", password="a secret"),
            )
        ]
        assert seen == [{"orders"}, set()]
        produced(running.client_settings(), "orders")
        assert running.in_sync("orders") == [1, 2]


def test_a_cluster_without_it_is_told_by_its_address_alone() -> None:
    with Cluster() as running:
        address = running.bootstrap_servers
        assert running.client_settings() == {"bootstrap.servers": address}
        assert running.client_settings("kafka-python") == {"bootstrap_servers": address}


def test_listeners_are_its_own() -> None:
    with pytest.raises(ValueError, match="listeners are the cluster's own"):
        Cluster(secure=True, config={"listeners": "PLAINTEXT://127.0.0.1:0"})
