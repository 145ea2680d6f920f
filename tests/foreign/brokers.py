"""A fresh broker for a suite: Moldau from a configuration file, as Apache Kafka is, on the loopback address only."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moldau.bench.apache_kafka import KafkaServer
from moldau.bench.server import MoldauServer, Server

ADDRESS = "{address}"
"""Stands in a setting for the host and port of the broker."""


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
def fresh_broker(settings: Mapping[str, object], *, on_kafka: bool) -> Iterator[Server]:
    """A broker that runs within the block, with data that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="moldau-foreign-", ignore_cleanup_errors=True) as folder:
        server = (KafkaServer if on_kafka else MoldauFromFile)(Path(folder))
        address = server.bootstrap_servers
        server.settings |= {key: str(value).replace(ADDRESS, address) for key, value in settings.items()}
        with server:
            yield server
