"""Where a workload plays: a world with brokers on hosts that fail, topics, and clients on hosts of their own.

One broker has its cluster store in its memory; several share one that is a host of its own.

What all workloads share: how topics are made, clients started and waited for, and what is noted of a run (`Outcome`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import CREATE_TOPICS, METADATA, PORT, Client
from moldau.sim.drive import DiskFaults
from moldau.sim.model import Model, Violation
from moldau.sim.node import POLL_S, BrokerNode
from moldau.sim.routes import METADATA_VERSION, metadata_request
from moldau.sim.store_node import StoreNode
from moldau.sim.world import World

T = TypeVar("T")

BROKER = "broker"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    configs: dict[str, str]
    replication_factor: int = 1

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(self.partitions)]


@dataclass(slots=True)
class Outcome:
    seed: int | str
    digest: str = ""
    virtual_s: float = 0.0
    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class Actor(Protocol):
    async def run(self) -> None: ...


class Stage:
    """`settings` are the brokers', beside those that all simulated brokers have."""

    def __init__(
        self,
        world: World,
        counts: dict[str, int],
        *,
        disk: DiskFaults,
        disk_delay_s: tuple[float, float],
        wall_skew_ms: int = 0,
        settings: dict[str, str] | None = None,
        brokers: int = 1,
    ) -> None:
        self.world = world
        self.counts = counts
        self.model = Model(world.loop.time)
        self.topic_ids: dict[str, UUID] = {}
        self.store = StoreNode(world) if brokers > 1 else None
        self.nodes: list[BrokerNode] = []
        for number in range(1, brokers + 1):
            name = BROKER if brokers == 1 else f"{BROKER}-{number}"
            host = world.host(name, disk=disk, wall_skew_ms=wall_skew_ms, thread_delay_s=disk_delay_s)
            own = dict(settings or {})
            if brokers > 1:
                own |= {"node.id": str(number), "advertised.listeners": f"PLAINTEXT://{name}:{PORT}"}
                own |= {"broker.rack": f"rack-{number}"}
            open_store = None if self.store is None else self.store.open
            self.nodes.append(BrokerNode(world, host, self.model, counts, own, open_store))
        self.clients: list[Client] = []
        self._running: list[tuple[Client, asyncio.Task[None]]] = []
        self._makers: dict[str, Callable[[Client], Actor]] = {}
        self._is_closing = False

    @property
    def node(self) -> BrokerNode:
        """The only broker."""
        (node,) = self.nodes
        return node

    # Clients

    def client(self, name: str, *, slowness_s: float = 0.0) -> Client:
        """A client on a host of its own, which is made; one that was killed comes back in its next life."""
        host = self.world.hosts.get(name)
        if host is None:
            host = self.world.host(name)
        elif host.alive:
            raise ValueError(f"two clients called {name}")
        else:
            host.restart()
        random = self.world.random.fork(f"client {name}")
        return Client(
            name,
            host.runtime,
            self.nodes,
            self.model,
            random,
            self.topic_ids,
            self.counts,
            slowness_s,
            host.lives,
        )

    def start(self, client: Client, actor: Actor) -> asyncio.Task[None]:
        self.clients.append(client)
        task = client.runtime.tasks.spawn(actor.run(), name=client.name)
        self._running.append((client, task))
        return task

    def play(self, name: str, make: Callable[[Client], Actor]) -> None:
        """Start a client that may be killed, and is made anew then."""
        self._makers[name] = make
        self.revive(name)

    def kill_client(self, name: str) -> None:
        if self.world.hosts[name].alive:
            self.world.hosts[name].kill()
            self.counts["clients killed"] = self.counts.get("clients killed", 0) + 1

    def revive(self, name: str) -> None:
        """Start a client that is not running, unless the run is about to end."""
        host = self.world.hosts.get(name)
        if not self._is_closing and (host is None or not host.alive):
            client = self.client(name)
            self.start(client, self._makers[name](client))

    @property
    def mortal_clients(self) -> list[str]:
        return list(self._makers)

    @property
    def client_names(self) -> list[str]:
        return list(dict.fromkeys(client.name for client in self.clients))

    async def drain(self) -> None:
        """Clients finish what they have begun: in a quiet world everything is answered in the end."""
        self._is_closing = True
        for client in self.clients:
            client.is_stopping = True
        hosts = self.world.hosts
        running = [
            (client, task)
            for client, task in self._running
            if client.runtime is hosts[client.name].runtime and hosts[client.name].alive
        ]
        await self.until(lambda: all(task.done() for _, task in running))
        for client, task in running:
            if not task.done() and not self.model.violations:
                self.model.fail(None, f"{client.name} to finish in a quiet world", "it goes on")

    # Scenes

    async def create_topics(self, topics: Sequence[TopicPlan]) -> None:
        client = self.client("admin")
        ids = await self.in_host(client, create_topics(client, topics), "topics to be created")
        self.topic_ids.update(ids or {})

    async def in_host(self, client: Client, work: Coroutine[Any, Any, T], what: str) -> T | None:
        """Run a client's work to its end; None, and a violation, where it comes to none in a quiet world."""
        task = client.runtime.tasks.spawn(work, name=client.name)
        if not await self.until(task.done):
            if not self.model.violations:
                self.model.fail(None, what, "it does not come to that")
            return None
        return task.result()

    async def until(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Wait; False where it has taken too long, or a promise is broken already."""
        deadline_s = self.world.loop.time() + patience_s
        while not condition():
            if self.world.loop.time() > deadline_s or self.model.violations:
                return False
            await self.world.sleep(POLL_S)
        return True


async def create_topics(client: Client, topics: Sequence[TopicPlan]) -> dict[str, UUID]:
    """Make the topics; their ids."""
    wanted = tuple(
        SimpleNamespace(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=(),
            configs=tuple(SimpleNamespace(name=name, value=value) for name, value in topic.configs.items()),
        )
        for topic in topics
    )
    request = SimpleNamespace(topics=wanted, timeout=1000, validate_only=False)
    accepted = (ErrorCode.none, ErrorCode.topic_already_exists) if client.is_in_cluster else (ErrorCode.none,)
    while True:
        answer = await client.ask(CREATE_TOPICS, 7, request)
        refused = [row for row in answer.topics if row.error_code not in accepted]
        if not refused or not client.is_in_cluster:
            break
        await client.pause()
    for row in refused:
        client.model.fail(None, f"{row.name} to be created", f"{row.error_code.name}")
    while True:
        names = [topic.name for topic in topics]
        described = await client.ask(METADATA, METADATA_VERSION, metadata_request(names))
        if not client.is_in_cluster or not any(topic.error_code for topic in described.topics):
            return {topic.name: topic.topic_id for topic in described.topics}
        await client.pause()
