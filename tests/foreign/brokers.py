"""A fresh broker for a suite, or a cluster of several: Moldau from a configuration file, as Apache Kafka is, on the
loopback address only.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import KafkaServer
from bench.clusters import Cluster, KafkaCluster, MoldauCluster
from bench.server import MoldauServer, Server, StartFailed

ADDRESS = "{address}"
"""Stands in a setting for the host and port of the broker."""

WITH_ACLS: Mapping[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""A broker that serves the APIs for ACLs, and allows everything all the same."""
COORDINATOR_TIMEOUT_S = 60


class MoldauFromFile(MoldauServer):
    """`moldau broker`: unlike `moldau up` it lets a suite choose the broker's number and address."""

    def command(self) -> Sequence[str]:
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._all_settings().items()))
        moldau, *_ = super().command()
        return [moldau, "broker", "--config", str(config)]

    def _all_settings(self) -> dict[str, object]:
        return {
            "node.id": 1,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": self.data,
            # From here on as Apache Kafka's helper sets it.
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self.settings,
        }


class Brokers(Protocol):
    """What a suite runs on."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str:
        """Of several brokers all, with commas."""

    def ended(self) -> bool:
        """Whether it, or one of them, has ended by itself."""

    def output(self) -> str:
        """The end of what it has printed."""


class Several:
    """A cluster as a suite sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = list(cluster.nodes.values())
        self.name = f"{cluster.name}, {len(self._nodes)} brokers"
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self._nodes)

    def ended(self) -> bool:
        return any(node.ended() for node in self._nodes)

    def output(self) -> str:
        return "\n".join(node.output() for node in self._nodes if node.ended())


@contextmanager
def fresh_brokers(
    settings: Mapping[str, object], topics: Sequence[str] = (), *, on_kafka: bool, count: int = 1
) -> Iterator[Brokers]:
    """One broker with these topics, or several with as many copies of each, within the block; the data go with it."""
    start = _one if count == 1 else _several
    with (
        tempfile.TemporaryDirectory(prefix="moldau-foreign-", ignore_cleanup_errors=True) as folder,
        start(Path(folder), settings, on_kafka, count) as brokers,
    ):
        _await_coordinators(brokers.bootstrap_servers)
        _create(topics, brokers.bootstrap_servers, count)
        yield brokers


@contextmanager
def _one(folder: Path, settings: Mapping[str, object], on_kafka: bool, _: int) -> Iterator[Brokers]:
    server = (KafkaServer if on_kafka else MoldauFromFile)(folder)
    server.settings |= _addressed(settings, server)
    with server:
        yield server


@contextmanager
def _several(folder: Path, settings: Mapping[str, object], on_kafka: bool, count: int) -> Iterator[Brokers]:
    cluster = (KafkaCluster if on_kafka else MoldauCluster)(folder, count)
    for node in cluster.nodes.values():
        node.settings |= _addressed(settings, node)
    with cluster:
        yield Several(cluster)


def _addressed(settings: Mapping[str, object], server: Server) -> dict[str, object]:
    return {key: str(value).replace(ADDRESS, server.bootstrap_servers) for key, value in settings.items()}


def _await_coordinators(address: str) -> None:
    """Wait until groups are coordinated.

    On a fresh broker, Apache Kafka's as well, clients are told NOT_COORDINATOR while the topic of the offsets is made,
    and some tests take this for a failure.
    """
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    consumer = Consumer({"bootstrap.servers": address, "group.id": "first", "log_level": 0})
    try:
        while True:
            try:
                consumer.committed([TopicPartition("first", 0)], timeout=5)
                return
            except KafkaException as problem:
                if time.monotonic() > deadline:
                    raise StartFailed(f"groups are not coordinated: {problem}") from None
    finally:
        consumer.close()


def _create(topics: Sequence[str], address: str, copies: int) -> None:
    if not topics:
        return
    client = AdminClient(
        {"bootstrap.servers": address}
    )  # kept until all is done: it fails what waits when it goes
    wanted = [NewTopic(name, num_partitions=1, replication_factor=copies) for name in topics]
    for created in client.create_topics(wanted).values():
        created.result(COORDINATOR_TIMEOUT_S)
