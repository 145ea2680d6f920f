"""Clusters of broker processes on this machine: Moldau's, and Apache Kafka's beside it.

Each node is a `Server` of its own, so that one can be killed and started again by itself; nothing restarts it
meanwhile, as `moldau up` would. A cluster's `usage` is the sum over the nodes that run. Kafka's nodes are brokers and
controllers in one process, three of them voters.
"""

from __future__ import annotations

import base64
import shutil
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from bench.apache_kafka import FORMAT_TIMEOUT_S, KafkaServer
from bench.raw import RawConnection, metadata_request, nested, request_class
from bench.server import HOST, POLL_INTERVAL_S, MoldauServer, Server, StartFailed, Usage, count_brokers
from moldau.runtime.real.free_ports import free_port

DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION = 55, 1
VOTERS_MAX = 3
START_TIMEOUT_S = 120.0
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
}


class MoldauNode(MoldauServer):
    """`moldau broker`, one of several."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        *,
        node_id: int,
        store: Path,
        port: int | None = None,
    ) -> None:
        super().__init__(folder.resolve(), settings, port=port)
        self._node_id = node_id
        self._store = store.resolve()

    def command(self) -> Sequence[str]:
        properties = self.folder / "broker.properties"
        settings = {
            **self.settings,
            "node.id": self._node_id,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": self.data,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        script = Path(sys.executable).with_name("moldau")
        moldau = str(script) if script.exists() else (shutil.which("moldau") or "moldau")
        return [moldau, "broker", "--config", str(properties), "--store", f"sqlite:{self._store}"]


class KafkaNode(KafkaServer):
    """One of several Apache Kafka nodes."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        *,
        node_id: int,
        voters: Mapping[int, int],
        cluster_id: str,
    ) -> None:
        """`voters`: the controller ports by node id."""
        super().__init__(folder, settings)
        self._node_id = node_id
        self._voters = voters
        self._cluster_id = cluster_id

    def format(self) -> None:
        if self._properties.exists():
            return
        text = "".join(f"{key}={value}\n" for key, value in self._node_settings().items())
        self._properties.write_text(text)
        self._distribution.run(
            "storage",
            *("format", "-t", self._cluster_id, "-c", str(self._properties)),
            timeout_s=FORMAT_TIMEOUT_S,
        )

    def _node_settings(self) -> dict[str, object]:
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in self._voters.items())
        settings = super()._node_settings()
        del settings["controller.quorum.bootstrap.servers"]
        settings |= {"node.id": self._node_id, "controller.quorum.voters": voters}
        if self._node_id in self._voters:
            controller = f"{HOST}:{self._voters[self._node_id]}"
            settings["listeners"] = f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}"
        else:
            settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{self.bootstrap_servers}"}
        return settings


class Cluster(ABC):
    name: ClassVar[str]

    def __init__(self, folder: Path, brokers: int = 3, settings: Mapping[str, object] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.nodes = self._nodes(folder, brokers, {**SETTINGS, **(settings or {})})
        """By broker id, from 1 on."""

    @abstractmethod
    def _nodes(self, folder: Path, brokers: int, settings: Mapping[str, object]) -> dict[int, Server]: ...

    @property
    def living(self) -> dict[int, Server]:
        return {number: node for number, node in self.nodes.items() if not node.ended()}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.living.values())

    def usage(self) -> Usage:
        used = [node.usage() for node in self.living.values()]
        return Usage(sum(one.cpu_s for one in used), sum(one.rss_bytes for one in used))

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Returns when every node serves clients and knows all the others."""
        for node in self.nodes.values():
            if node.ended():
                node.launch()
        for node in self.nodes.values():
            self.wait_joined(node, timeout_s)
        return self

    def wait_joined(self, node: Server, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while count_brokers(node.port) < len(self.living):
            if node.ended():
                raise StartFailed(f"{self.name} ended while starting:\n{node.output()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name} is no cluster within {timeout_s:g} s:\n{node.output()}")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Nobody waits for the last one to hand over what it leads: its data are thrown away."""
        for node in self.living.values():
            node.kill()

    @abstractmethod
    def controller(self) -> int:
        """The broker that is the controller."""

    def describe(self, node: Server | None = None) -> Any:
        """What a broker answers to Metadata, for all topics."""
        chosen = node or next(iter(self.living.values()))
        with RawConnection(chosen.bootstrap_servers) as connection:
            return connection.ask(metadata_request())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class MoldauCluster(Cluster):
    name = "Moldau"

    def controller(self) -> int:
        return int(self.describe().controller_id)

    def _nodes(self, folder: Path, brokers: int, settings: Mapping[str, object]) -> dict[int, Server]:
        store = folder / "cluster.sqlite"
        return {
            number: MoldauNode(folder / f"moldau-{number}", settings, node_id=number, store=store)
            for number in range(1, brokers + 1)
        }


class KafkaCluster(Cluster):
    name = "Apache Kafka"

    def controller(self) -> int:
        """The leader of the quorum: Metadata names any broker."""
        cls = request_class(DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION)
        topics = nested(cls, "topics")
        partition = nested(topics, "partitions")(partition_index=0)
        request = cls(topics=(topics(topic_name="__cluster_metadata", partitions=(partition,)),))
        with RawConnection(next(iter(self.living.values())).bootstrap_servers) as connection:
            return int(connection.ask(request).topics[0].partitions[0].leader_id)

    def _nodes(self, folder: Path, brokers: int, settings: Mapping[str, object]) -> dict[int, Server]:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        voters = {number: free_port() for number in range(1, min(VOTERS_MAX, brokers) + 1)}
        return {
            number: KafkaNode(
                folder / f"kafka-{number}", settings, node_id=number, voters=voters, cluster_id=cluster_id
            )
            for number in range(1, brokers + 1)
        }
