"""A fresh broker for a suite: Moldau from a configuration file, as Apache Kafka is, on the loopback address only."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.bench.apache_kafka import KafkaServer
from moldau.bench.server import MoldauServer, Server, StartFailed

ADDRESS = "{address}"
"""Stands in a setting for the host and port of the broker."""

WITH_ACLS: Mapping[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Apache Kafka that serves the APIs for ACLs, and allows everything all the same."""
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


@contextmanager
def fresh_broker(
    settings: Mapping[str, object], topics: Sequence[str] = (), *, on_kafka: bool
) -> Iterator[Server]:
    """A broker with these topics that runs within the block; its data is thrown away."""
    with tempfile.TemporaryDirectory(prefix="moldau-foreign-", ignore_cleanup_errors=True) as folder:
        server = (KafkaServer if on_kafka else MoldauFromFile)(Path(folder))
        address = server.bootstrap_servers
        server.settings |= {key: str(value).replace(ADDRESS, address) for key, value in settings.items()}
        with server:
            _await_coordinators(address)
            _create(topics, address)
            yield server


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


def _create(topics: Sequence[str], address: str) -> None:
    if not topics:
        return
    client = AdminClient(
        {"bootstrap.servers": address}
    )  # kept until all is done: it fails what waits when it goes
    wanted = [NewTopic(name, num_partitions=1, replication_factor=1) for name in topics]
    for created in client.create_topics(wanted).values():
        created.result(COORDINATOR_TIMEOUT_S)
