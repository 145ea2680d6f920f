"""Several brokers in this process: on one event loop, over real sockets, with one store in memory.

A killed broker closes its connections, loses its session and leaves its folder as it is, as a process that was killed
does; a stopped one leaves in order. Both come back with `start`, on the port that they had.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.topics import NewTopic
from moldau.coordinator.runtime import partition_for
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import NO_LEADER
from moldau.store.memory import MemoryStore, Tree
from moldau.testing.loop_thread import LoopThread

T = TypeVar("T")
TIMEOUT_S = 60.0
PATIENCE_S = 30.0
POLL_S = 0.02
SETTINGS = {
    "moldau.http.port": "-1",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


class Brokers:
    """Broker ids are 1 to `count`."""

    def __init__(self, count: int = 3, settings: dict[str, str] | None = None) -> None:
        self._settings = SETTINGS | (settings or {})
        self._folder = tempfile.mkdtemp(prefix="moldau-brokers-")
        self._thread = LoopThread("moldau-brokers")
        self._tree = Tree()
        self._ports: dict[int, int] = {}
        self._ids = range(1, count + 1)
        self._stores: dict[int, MemoryStore] = {}
        self.running: dict[int, Broker] = {}

    def __enter__(self) -> Brokers:
        try:
            for broker_id in self._ids:
                self.start(broker_id)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        try:
            for broker_id in list(self.running):
                self.kill(broker_id)
            self._thread.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    # Life

    def start(self, broker_id: int) -> Broker:
        own = {
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(broker_id, 0)}",
            "log.dirs": f"{self._folder}/broker-{broker_id}",
        }
        config = BrokerConfig.parse(self._settings | own)

        async def start() -> Broker:
            store = MemoryStore(self._tree, self._thread.runtime.tasks, holder=str(broker_id))
            store._threads = None  # all stores of one tree are on one thread
            self._stores[broker_id] = store
            broker = Broker(config, self._thread.runtime, store, boot_id="one")
            await broker.start()
            return broker

        broker = self.running[broker_id] = self.call(start)
        (listener,) = broker.listeners.values()
        self._ports[broker_id] = listener.address[1]
        return broker

    def stop(self, broker_id: int) -> None:
        self.call(self.running.pop(broker_id).stop)

    def kill(self, broker_id: int) -> None:
        broker = self.running.pop(broker_id)

        async def crash() -> None:
            broker.crash()
            self._stores[broker_id].abandon()

        self.call(crash)

    # The cluster

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.call(work, timeout_s=TIMEOUT_S)

    @property
    def any(self) -> Broker:
        return next(iter(self.running.values()))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def controller_id(self) -> int:
        return next(id_ for id_, broker in self.running.items() if broker.active_controller is not None)

    def create(self, name: str, *leaders: int, replicas: int = 3) -> None:
        """A topic with a partition for each broker named, which leads it first."""
        others = {
            leader: [leader, *(broker_id for broker_id in self._ids if broker_id != leader)][:replicas]
            for leader in leaders
        }
        assignments = tuple((index, tuple(others[leader])) for index, leader in enumerate(leaders))
        topic = NewTopic(name, -1, -1, assignments)
        ((error, message),) = self.call(lambda: self.any.channel.create_topics([topic]))
        assert not error, message

    def make_coordinators(self, topic: str) -> None:
        """Have an internal topic made, as the first client that asks for a coordinator does."""
        self.wait_for(
            lambda: self.call(lambda: self.any.coordinators.find(topic, "any"))[0] is ErrorCode.none, topic
        )

    def key_led_by(self, topic: str, broker_id: int, prefix: str = "key") -> str:
        """A group id, or a transactional id, that a broker coordinates."""
        partitions = self.any.image.topics[topic].partitions
        names = (f"{prefix}-{number}" for number in range(1000))
        return next(
            name for name in names if partitions[partition_for(name, len(partitions))].leader == broker_id
        )

    def coordinator_of(self, topic: str, key: str) -> int:
        partitions = self.any.image.topics[topic].partitions
        return partitions[partition_for(key, len(partitions))].leader

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"waited in vain for: {what}"
            time.sleep(POLL_S)

    def wait_for_in_sync(self, *names: str) -> None:
        """All replicas of some topics are in sync, as every broker sees it."""
        self.wait_for(lambda: all(self._is_whole(b.image, names) for b in self.running.values()), "in sync")

    def _is_whole(self, image: ClusterImage, names: tuple[str, ...]) -> bool:
        return all(
            name in image.topics
            and all(
                state.leader != NO_LEADER and len(state.isr) == len(state.replicas)
                for state in image.topics[name].partitions
            )
            for name in names
        )
