"""`Cluster`: a Moldau broker in the caller's process, for tests.

It listens on a free port of 127.0.0.1, keeps its data in a temporary folder, and serves any Kafka client: ready when
`start` (or the `with`) returns, and gone after `stop` at the end: no thread, no socket, no folder is left. Topics are
created when a client first uses them, as Kafka does by default, or with `topics=` and `create_topic`.

`restart` is a clean stop and start on the same port with the same data. A crash cannot be shown honestly within one
process; for that, run `moldau up` and kill it.

A process forked off while it runs may use it as any client does; it belongs to the process that started it, and a
stop or an exit in another one leaves it alone.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.topics import NewTopic, TopicReference
from moldau.store.memory import MemoryStore, Tree
from moldau.testing.loop_thread import LoopThread

HOST = "127.0.0.1"
TIMEOUT_S = 30.0
Config = Mapping[str, Any]

_running: weakref.WeakSet[Cluster] = weakref.WeakSet()


DEFAULTS = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:0",
    "log.retention.ms": "-1",  # tests write messages of years ago, and expect to find them
    "group.initial.rebalance.delay.ms": "0",  # nobody else will join: no test should wait for them
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "5",  # made when a group is first used; Kafka's 50 take longer
}


class Cluster:
    """One broker. `config` has Kafka's broker keys; `topics` maps names of topics to their numbers of partitions."""

    def __init__(self, *, topics: Mapping[str, int] | None = None, config: Config | None = None) -> None:
        self._topics = dict(topics or {})
        self._settings = DEFAULTS | texts(config or {})
        for key in ("log.dir", "log.dirs", "moldau.store"):
            if key in self._settings:
                raise ValueError(f"{key} is the cluster's own: its data are in a temporary folder")
        self._lock = threading.RLock()
        self._thread: LoopThread | None = None
        self._broker: Broker | None = None
        self._folder: str | None = None
        self._process_id = 0  # of the process that started it
        self._tree = Tree()  # what the cluster knows; it outlives a restart

    # ---- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Serve clients; with the data of before where `stop(keep_data=True)` kept them."""
        with self._lock:
            if self._broker is not None:
                raise RuntimeError("the cluster is running already")
            self._process_id = os.getpid()
            fresh = self._folder is None
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="moldau-test-")
            try:
                self._start_broker(self._folder)
                if fresh:
                    for name, partitions in self._topics.items():
                        self.create_topic(name, partitions)
            except BaseException:
                self.stop()
                raise
            _running.add(self)

    def _start_broker(self, folder: str) -> None:
        config = BrokerConfig.parse(self._settings | {"log.dirs": os.path.join(folder, "broker-1")})
        self._thread = thread = LoopThread("moldau-cluster")

        async def start() -> Broker:
            broker = Broker(config, thread.runtime, MemoryStore(self._tree))
            await broker.start()
            return broker

        self._broker = thread.call(start, timeout_s=TIMEOUT_S)
        # A restart must be found where clients look for it.
        addresses = {name: listener.address for name, listener in self._broker.listeners.items()}
        self._settings["listeners"] = ",".join(
            f"{name}://{bracketed(host)}:{port}" for name, (host, port) in addresses.items()
        )

    def stop(self, *, keep_data: bool = False) -> None:
        """End cleanly. Without `keep_data` the data folder is removed; a second stop does nothing."""
        if self.is_foreign:
            return
        with self._lock:
            _running.discard(self)
            try:
                if self._broker is not None and self._thread is not None:
                    self._thread.call(self._broker.stop, timeout_s=TIMEOUT_S)
            finally:
                self._broker = None
                if self._thread is not None:
                    self._thread.close()
                    self._thread = None
                if not keep_data and self._folder is not None:
                    shutil.rmtree(self._folder, ignore_errors=True)
                    self._folder = None
                    self._tree = Tree()

    def restart(self) -> None:
        """A clean stop and start: the same address, the same data; connections break in between."""
        with self._lock:
            self.stop(keep_data=True)
            self.start()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def is_foreign(self) -> bool:
        """Whether another process started it, and this one was forked off later: its broker does not run here."""
        return self._process_id not in (0, os.getpid())

    # ---- use --------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Where clients start from: `127.0.0.1:PORT`."""
        return self._running_broker.bootstrap_servers

    def create_topic(self, name: str, partitions: int = 1, config: Config | None = None) -> None:
        """Create a topic, ready to be used when this returns. ValueError with the broker's reason where it refuses."""
        topic = NewTopic(name, partitions, 1, configs=tuple(texts(config or {}).items()))
        broker = self._running_broker
        (outcome,) = self._call(lambda: broker.controller.create_topics([topic]))
        if outcome.error != ErrorCode.none:
            raise ValueError(f"topic {name!r}: {outcome.message or outcome.error.name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages. KeyError where there is none of that name."""
        broker = self._running_broker
        (outcome,) = self._call(lambda: broker.controller.delete_topics([TopicReference(name=name)]))
        if outcome.error == ErrorCode.unknown_topic_or_partition:
            raise KeyError(name)
        if outcome.error != ErrorCode.none:
            raise ValueError(f"topic {name!r}: {outcome.message or outcome.error.name}")

    @property
    def topics(self) -> list[str]:
        """The names of the topics that are there, without the cluster's own."""
        topics = self._running_broker.image.topics.values()
        return sorted(topic.name for topic in topics if not topic.is_internal)

    @property
    def _running_broker(self) -> Broker:
        if self._broker is None:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:` or call start()")
        return self._broker

    def _call(self, work: Any) -> Any:
        if self._thread is None:
            raise RuntimeError("the cluster is not running")
        if self.is_foreign:
            raise RuntimeError("the cluster runs in another process, which started it: ask for this there")
        return self._thread.call(work, timeout_s=TIMEOUT_S)


def texts(config: Config) -> dict[str, str]:
    """Python's values as Kafka writes them: `{"num.partitions": 3, "delete.topic.enable": True}`."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()
    }


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@atexit.register
def _remove_folders() -> None:
    """A cluster that was never stopped dies with the process; it leaves no folder behind either."""
    for cluster in list(_running):
        if cluster._folder is not None and not cluster.is_foreign:
            shutil.rmtree(cluster._folder, ignore_errors=True)
