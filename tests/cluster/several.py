"""Several brokers, each a process of its own that tests kill, stop and start by its id, over one cluster store.

Every broker is `moldau broker --config FILE` on a free port, so that a test may end it and start it again as it likes;
`moldau up --brokers N` has tests of its own. What a test wants to know of the cluster it asks a broker for with raw
requests: who leads, who is in sync, who is the controller.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw import RawConnection, metadata_request
from bench.server import HOST, Server
from cluster.networks import Network
from cluster.support import wait_until
from contract.ensembles import running_ensemble

PATIENCE_S = 90.0
"""For whatever the cluster does by itself, on a machine that is busy with other things."""
ANSWER_S = 3.0
"""A broker that is stopped does not answer."""
SESSION_MS = 3000
ENGINES = ("sqlite", "zookeeper")
QUICK = {
    "broker.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 5000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}


class BrokerProcess(Server):
    """`moldau broker`, under one id, on one port, with one data folder."""

    name = "Moldau"

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        store: str,
        settings: Mapping[str, object],
        network: Network | None = None,
    ) -> None:
        super().__init__(folder, settings)
        self.id = broker_id
        self._host = HOST if network is None else network.address(broker_id)
        self.place = [] if network is None else network.command(broker_id)
        """What its command begins with."""
        self._store = store
        self._lives = 0

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._host}:{self.port}"

    def command(self) -> Sequence[str]:
        own = {
            "node.id": self.id,
            "log.dirs": self.data,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
        }
        path = self.folder / "broker.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in (own | self.settings).items()))
        program = [sys.executable, "-c", "from moldau.cli import main; main()"]
        return [*self.place, *program, "broker", "--config", str(path), "--store", self._store]

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def launch(self) -> None:
        """What an earlier life has said is kept beside."""
        said = self.folder / "stderr.txt"
        if said.exists():
            self._lives += 1
            said.rename(self.folder / f"stderr-{self._lives}.txt")
        super().launch()

    def is_ready(self) -> bool:
        return b"ready: bootstrap.servers=" in (self.folder / "stdout.txt").read_bytes()

    def said(self) -> str:
        """All that it has logged, in all its lives."""
        paths = sorted(self.folder.glob("stderr*.txt"), key=lambda path: path.stat().st_mtime)
        return "".join(path.read_text(errors="replace") for path in paths)


class View(NamedTuple):
    """A partition as one broker sees it."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Cluster:
    def __init__(
        self,
        folder: Path,
        store: str,
        number: int,
        settings: Mapping[str, object],
        network: Network | None = None,
    ) -> None:
        self.folder = folder
        self.brokers = {
            broker_id: BrokerProcess(
                broker_id, folder / f"broker-{broker_id}", store, QUICK | dict(settings), network
            )
            for broker_id in range(1, number + 1)
        }
        self.paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def ids(self) -> list[int]:
        return list(self.brokers)

    @property
    def running(self) -> list[int]:
        """Those that run and are not stopped by a signal."""
        return [i for i, broker in self.brokers.items() if not broker.ended() and i not in self.paused]

    def start(self, *ids: int) -> None:
        """All of them, or some; returns when clients are served."""
        self.launch(*ids)
        for broker_id in ids or self.ids:
            self.brokers[broker_id].wait_ready(PATIENCE_S)

    def launch(self, *ids: int) -> None:
        for broker_id in ids or self.ids:
            self.brokers[broker_id].launch()

    def kill(self, *ids: int) -> None:
        """kill -9. One that has ended by itself is a failure."""
        for broker_id in ids:
            broker = self.brokers[broker_id]
            assert not broker.ended(), f"broker {broker_id} has ended by itself:\n{broker.output()}"
            os.kill(broker.pid, 9)
        for broker_id in ids:
            self.brokers[broker_id].kill()
            self.paused.discard(broker_id)

    def pause(self, broker_id: int) -> None:
        self.brokers[broker_id].pause()
        self.paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].resume()
        self.paused.discard(broker_id)

    def stop(self, *ids: int) -> None:
        """Cleanly, one after the other; all that run, or some."""
        for broker_id in ids or self.running:
            assert self.brokers[broker_id].stop(PATIENCE_S), self.brokers[broker_id].output()

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # What the brokers say

    def ask(self, request: Any, *ids: int) -> Any:
        """The answer of the first broker that gives one; OSError where none does."""
        problem: OSError = ConnectionError("no broker runs")
        for broker_id in ids or self.running:
            try:
                address = self.brokers[broker_id].bootstrap_servers
                with RawConnection(address, timeout_s=ANSWER_S) as connection:
                    return connection.ask(request)
            except OSError as error:
                problem = error
        raise problem

    def views(self, topic: str, *ids: int) -> list[View]:
        """The topic's partitions by their numbers; none where the broker does not know it (yet)."""
        answer = self.ask(metadata_request(), *ids)
        for found in answer.topics:
            if found.name == topic and not found.error_code:
                partitions = sorted(found.partitions, key=lambda one: one.partition_index)
                return [
                    View(p.leader_id, p.leader_epoch, tuple(p.isr_nodes), tuple(p.replica_nodes))
                    for p in partitions
                ]
        return []

    def leader(self, topic: str, partition: int = 0) -> int:
        """As soon as one leads that runs."""
        found: list[int] = []

        def is_led() -> bool:
            try:
                views = self.views(topic)
            except OSError:
                return False
            found[:] = [view.leader for view in views[partition : partition + 1]]
            return bool(found) and found[0] in self.running

        wait_until(is_led, PATIENCE_S, f"a leader of {topic}-{partition}")
        return found[0]

    def controller(self) -> int:
        """As soon as one is in office that runs."""
        found: list[int] = []

        def is_there() -> bool:
            try:
                found[:] = [self.ask(metadata_request()).controller_id]
            except OSError:
                return False
            return found[0] in self.running

        wait_until(is_there, PATIENCE_S, "a controller")
        return found[0]

    def create(self, topic: str, partitions: int, copies: int, **configs: object) -> None:
        """Returns when all replicas are in sync."""
        dotted = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(topic, num_partitions=partitions, replication_factor=copies, config=dotted)
        try:
            admin.create_topics([new])[topic].result(PATIENCE_S)
        except KafkaException as error:
            raise AssertionError(f"{topic} cannot be created: {error}\n{self.words()}") from error
        self.wait_in_sync([topic])

    def wait_in_sync(self, topics: Sequence[str] = (), timeout_s: float = PATIENCE_S) -> None:
        """Until every replica of the topics (of all of them) is in sync, as all running brokers see it."""
        seen = ""

        def is_whole() -> bool:
            nonlocal seen
            try:
                for broker_id in self.running:
                    answer = self.ask(metadata_request(), broker_id)
                    for found in answer.topics:
                        if topics and found.name not in topics:
                            continue
                        for p in found.partitions:
                            if p.leader_id < 0 or set(p.isr_nodes) != set(p.replica_nodes):
                                seen = f"broker {broker_id} says {found.name}: {p}"
                                return False
                    if not set(topics) <= {found.name for found in answer.topics}:
                        seen = f"broker {broker_id} does not know {topics}"
                        return False
            except OSError as error:
                seen = repr(error)
                return False
            return True

        try:
            wait_until(is_whole, timeout_s, "all replicas in sync")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}\n{self.words()}") from None

    def words(self) -> str:
        """What the brokers have said last, for a failure."""
        return "\n".join(f"--- broker {i}\n{broker.output()}" for i, broker in self.brokers.items())


NewCluster = Callable[..., Cluster]


@contextmanager
def clusters(folder: Path) -> Iterator[NewCluster]:
    """Makes and starts clusters; everything ends with the block."""
    made: list[Cluster] = []

    def make(number: int, store: str = "", network: Network | None = None, **settings: object) -> Cluster:
        own = folder / f"cluster-{len(made) + 1}"
        own.mkdir(parents=True)
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        cluster = Cluster(own, store or f"sqlite:{own / 'cluster.sqlite'}", number, dotted, network)
        made.append(cluster)
        cluster.start()
        return cluster

    try:
        yield make
    finally:
        for cluster in made:
            cluster.end()


@contextmanager
def store_of(engine: str, folder: Path) -> Iterator[str]:
    """The address of a store: of a running ensemble, or none, which is a file beside the brokers."""
    if engine == "sqlite":
        yield ""
        return
    with running_ensemble(folder / "zookeeper") as ensemble:
        yield f"{ensemble.url}/{int(time.time())}"
