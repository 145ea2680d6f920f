"""`Cluster`: Moldau in the caller's process, for tests: one broker, or several that can fail.

The brokers listen on free ports of 127.0.0.1, keep their data in a temporary folder, and serve any Kafka client: ready
when `start` (or the `with`) returns, and gone after `stop` at the end: no thread, no socket, no folder is left. Topics
are created when a client first uses them, as Kafka does by default, or with `topics=` and `create_topic`.

`restart` is a clean stop and start on the same ports with the same data. Of several brokers (ids 1, 2, ...) each can be
stopped, killed, paused and started alone, and cut off from others; `member` says how far that is from the real thing.

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
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker
from moldau.cli.reach import BROKERS
from moldau.controller.controller import Controller
from moldau.controller.topics import NewTopic, TopicReference
from moldau.metadata.records import ResourceType
from moldau.runtime.ports import Runtime
from moldau.runtime.real.free_ports import FreePorts
from moldau.store.memory import MemoryStore, Tree
from moldau.testing.failures import Failures
from moldau.testing.links import Links
from moldau.testing.member import HOST, TIMEOUT_S, Member, OwnStore
from moldau.testing.security import Security, plain_settings

Config = Mapping[str, Any]
T = TypeVar("T")

BROKERS_MAX = 20
REPLICAS_WANTED = 3
STORE_FILE = "cluster.sqlite"
SESSION_TIMEOUT_S = 3.0
"""How long a paused broker is waited for; one that is killed is missed at once."""

RETENTION_IN_LARGER_UNITS = frozenset({"log.retention.minutes", "log.retention.hours"})

_running: weakref.WeakSet[Cluster] = weakref.WeakSet()


def defaults(brokers: int) -> dict[str, str]:
    copies, in_sync = str(min(REPLICAS_WANTED, brokers)), "2" if brokers >= REPLICAS_WANTED else "1"
    return {
        "listeners": f"PLAINTEXT://{HOST}:0",
        "log.retention.ms": "-1",  # tests write messages of years ago, and expect to find them
        "group.initial.rebalance.delay.ms": "0",  # nobody else will join: no test should wait for them
        # KIP-848: members learn of a change by their next heartbeat, and it takes some of these (Kafka's 5 s each).
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.assignment.interval.ms": "0",  # who joins is given partitions at once, not a second later
        "group.consumer.min.session.timeout.ms": "6000",  # a test may set less than Kafka's 45 s, as in classic groups
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "offsets.topic.num.partitions": "5",  # made when a group is first used; Kafka's 50 take longer
        "replica.lag.time.max.ms": "3000",  # a test that cuts brokers off should not wait for Kafka's 30 s
    }


def settings_for(brokers: int, config: Config) -> dict[str, str]:
    settings = defaults(brokers)
    if not RETENTION_IN_LARGER_UNITS.isdisjoint(config):
        del settings["log.retention.ms"]  # it would win over them
    return settings | texts(config)


class Cluster(Failures):
    """So many brokers, with the ids 1, 2, ... `config` has Kafka's broker keys; `topics` maps names of topics to their
    numbers of partitions. Topics have three replicas where there are so many brokers. With `secure` clients come in by
    TLS and a password, as `client_settings` says.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        config: Config | None = None,
        secure: bool = False,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"a cluster has 1 to {BROKERS_MAX} brokers, not {brokers}")
        if secure and "listeners" in (config or {}):
            raise ValueError("listeners are the cluster's own where it is secure")
        self._security = Security() if secure else None
        self._topics = dict(topics or {})
        self._settings = settings_for(brokers, config or {})
        for key in ("log.dir", "log.dirs", "moldau.store"):
            if key in self._settings:
                raise ValueError(f"{key} is the cluster's own: its data are in a temporary folder")
        if brokers > 1 and not {"node.id", "broker.id", "listeners"}.isdisjoint(config or {}):
            raise ValueError("node.id and listeners are the cluster's own where it has several brokers")
        self._lock = threading.RLock()
        self._folder: str | None = None
        self._process_id = 0  # of the process that started it
        self._tree = Tree()  # what one broker knows; it outlives a restart
        self._ports = FreePorts(HOST)
        self._links = Links()
        self._members = {
            number: Member(number, self._settings_of(number, brokers), self._open_store, self._links)
            for number in range(1, brokers + 1)
        }

    def _settings_of(self, number: int, brokers: int) -> dict[str, str]:
        settings = {"node.id": str(number)} | self._settings
        port = self._ports.take() if brokers > 1 else 0  # one alone takes a port when it starts
        if self._security is not None:
            own = self._ports.take() if brokers > 1 else 0
            settings["listeners"] = f"SASL_SSL://{HOST}:{port},{BROKERS}://{HOST}:{own}"
        elif brokers > 1:
            settings["listeners"] = f"PLAINTEXT://{HOST}:{port}"
        return settings

    async def _open_store(self, runtime: Runtime, number: int) -> OwnStore:
        if len(self._members) == 1:
            return MemoryStore(self._tree)
        from moldau.store.sqlite import SqliteStore

        assert self._folder is not None
        path = os.path.join(self._folder, STORE_FILE)
        return await SqliteStore.open(runtime.tasks, path, session_timeout_s=SESSION_TIMEOUT_S, syncs=False)

    # Life

    def start(self, broker: int | None = None) -> None:
        """Serve clients; with the data of before where `stop(keep_data=True)` kept them. With an id: start a broker
        that was stopped or killed, on its port and with its data.
        """
        with self._lock:
            if broker is not None:
                self._start_members([self._member(broker)])
                return
            if any(member.broker is not None for member in self._members.values()):
                raise RuntimeError("the cluster is running already")
            self._process_id = os.getpid()
            fresh = self._folder is None
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="moldau-test-")
            self._ports.let_servers_have_them()
            try:
                if fresh and self._security is not None:
                    for member in self._members.values():
                        member.settings |= self._security.make(self._folder)
                self._start_members(list(self._members.values()))
                if fresh and self._security is not None:
                    self.create_user(self._security.made.user, self._security.made.password)
                if fresh:
                    for name, partitions in self._topics.items():
                        self.create_topic(name, partitions)
            except BaseException:
                self.stop()
                raise
            _running.add(self)

    def _start_members(self, members: list[Member]) -> None:
        if self._folder is None:
            raise RuntimeError("the cluster is not running: call start() first")
        folder = self._folder
        begun = [(member, member.begin_start(folder)) for member in members]
        try:
            for _, future in begun:
                future.result(TIMEOUT_S)
        except BaseException:
            for member, _ in begun:
                member.kill()
            raise
        if len(self._members) > 1:
            self._wait_until(self._is_acquainted, "the brokers to know each other")

    def stop(self, broker: int | None = None, *, keep_data: bool = False) -> None:
        """End, cleanly with `keep_data`; without it the data folder is removed, and nothing in it closed before. A
        second stop does nothing. With an id: stop one broker, whose data stay; others lead what it has led when this
        returns.
        """
        if self.is_foreign:
            return
        with self._lock:
            if broker is not None:
                self._member(broker).stop()
                return
            _running.discard(self)
            try:
                self._stop_members(cleanly=keep_data)
            finally:
                self._links.heal()
                if not keep_data:
                    self._remove_data()

    def _stop_members(self, *, cleanly: bool) -> None:
        """All of them, whatever happens with one. What will be thrown away need not be closed."""
        failure: BaseException | None = None
        for member in self._members.values():
            try:
                member.stop() if cleanly else member.kill()
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _remove_data(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._tree = Tree()

    def restart(self) -> None:
        """A clean stop and start: the same addresses, the same data; connections break in between."""
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

    # Use

    @property
    def bootstrap_servers(self) -> str:
        """Where clients start from: `127.0.0.1:PORT`, with commas between several; also of brokers that are down."""
        self._any_broker()
        return ",".join(member.address for member in self._members.values())

    def client_settings(
        self, client: str = "librdkafka", *, user: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        """What a client of this cluster is given: `librdkafka` (confluent-kafka), `java`, `kafka-python` or `aiokafka`;
        for the first user of a secure cluster, or another one.
        """
        if self._security is None:
            return plain_settings(client, self.bootstrap_servers)
        return self._security.settings(client, self.bootstrap_servers, user, password)

    def create_user(self, name: str, password: str) -> None:
        """A user of a secure cluster, or a new password of one who is there."""
        from moldau.cli.first_user import upsertions

        for upsertion in upsertions(name, password):
            (outcome,) = self._ask_controller(
                lambda controller, asked=upsertion: controller.alter_users((), (asked,))  # type: ignore[misc]
            )
            if outcome.error != ErrorCode.none:
                raise ValueError(f"user {name!r}: {outcome.message or outcome.error.name}")
        self._wait_until(
            lambda: all(
                name in broker.image.configs_of(ResourceType.USER) for broker in self._running_brokers()
            ),
            f"user {name!r} to be known",
        )

    def create_topic(
        self, name: str, partitions: int = 1, config: Config | None = None, *, replicas: int | None = None
    ) -> None:
        """Create a topic, ready to be used when this returns. ValueError with the broker's reason where it refuses."""
        copies = min(REPLICAS_WANTED, len(self._members)) if replicas is None else replicas
        topic = NewTopic(name, partitions, copies, configs=tuple(texts(config or {}).items()))
        (outcome,) = self._ask_controller(lambda controller: controller.create_topics([topic]))
        if outcome.error != ErrorCode.none:
            raise ValueError(f"topic {name!r}: {outcome.message or outcome.error.name}")
        if len(self._members) > 1:
            self._wait_until(lambda: self._is_served(name), f"topic {name!r} to be served")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages. KeyError where there is none of that name."""
        (outcome,) = self._ask_controller(
            lambda controller: controller.delete_topics([TopicReference(name=name)])
        )
        if outcome.error == ErrorCode.unknown_topic_or_partition:
            raise KeyError(name)
        if outcome.error != ErrorCode.none:
            raise ValueError(f"topic {name!r}: {outcome.message or outcome.error.name}")
        self._wait_until(
            lambda: all(name not in broker.image.topics for broker in self._running_brokers()),
            f"topic {name!r} to be gone",
        )

    @property
    def topics(self) -> list[str]:
        """The names of the topics that are there, without the cluster's own."""
        topics = list(self._image().topics.values())
        return sorted(topic.name for topic in topics if not topic.is_internal)

    # The brokers

    def _member(self, broker: int) -> Member:
        self._require_own()
        try:
            return self._members[broker]
        except KeyError:
            raise ValueError(f"there is no broker {broker}: there are 1 to {len(self._members)}") from None

    def _require_own(self) -> None:
        if self.is_foreign:
            raise RuntimeError("the cluster runs in another process, which started it: ask for this there")

    def _any_broker(self) -> Broker:
        brokers = self._running_brokers()
        if not brokers:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:` or call start()")
        return brokers[0]

    def _ask_controller(self, work: Callable[[Controller], Coroutine[Any, Any, T]]) -> T:
        """Have the broker that is the controller do something; it is waited for where there is none now."""
        self._any_broker()
        self._require_own()
        member, controller = self._wait_for(self._active_controller, "a controller")
        return member.thread.call(lambda: work(controller), timeout_s=TIMEOUT_S)


def texts(config: Config) -> dict[str, str]:
    """Python's values as Kafka writes them: `{"num.partitions": 3, "delete.topic.enable": True}`."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()
    }


@atexit.register
def _remove_folders() -> None:
    """A cluster that was never stopped dies with the process; it leaves no folder behind either."""
    for cluster in list(_running):
        if cluster._folder is not None and not cluster.is_foreign:
            shutil.rmtree(cluster._folder, ignore_errors=True)
