"""The first workload: one broker, clients that produce and fetch, and everything that can go wrong with them.

`simulate(seed)` makes a world, draws its topics, clients and faults from the seed, lets it run for some virtual
seconds, and then, in a quiet world, reads every log to its end: once as it is, and once more after a last power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.checkers import check_host, check_log
from moldau.sim.client import CREATE_TOPICS, METADATA, Client
from moldau.sim.fabric import Link
from moldau.sim.liar import Liar
from moldau.sim.loop import START_S
from moldau.sim.model import Model, Violation
from moldau.sim.nemesis import Mixture, Nemesis
from moldau.sim.node import POLL_S, BrokerNode
from moldau.sim.producers import IdempotentProducer, PlainProducer
from moldau.sim.random import SimRandom
from moldau.sim.readers import Reader, read_all
from moldau.sim.world import World

T = TypeVar("T")

SECONDS = 6.0
PATIENCE_S = 60.0
STEPS_MAX = 3_000_000
"""A run of the usual length takes a tenth of it; one that takes more is going round in circles."""
BROKER = "broker"
SLOW_READER_BUFFER_BYTES = 4096
SLOW_READER_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    configs: dict[str, str]

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(self.partitions)]

    @classmethod
    def draw(cls, number: int, random: SimRandom) -> TopicPlan:
        configs = {
            "internal.segment.bytes": str((6_000, 20_000, 60_000)[random.randrange(3)]),
            "index.interval.bytes": str((0, 500, 4096)[random.randrange(3)]),
        }
        if number == 0 or random.chance(0.5):  # the first topic is always flushed
            configs["flush.messages"] = "1"
        elif random.chance(0.5):
            configs["flush.messages" if random.chance(0.5) else "flush.ms"] = str(2 + random.randrange(30))
        if random.chance(0.2):
            configs["message.timestamp.type"] = "LogAppendTime"
        if random.chance(0.2):
            configs["compression.type"] = ("gzip", "lz4", "zstd", "snappy", "uncompressed")[
                random.randrange(5)
            ]
        if random.chance(0.2):
            configs["segment.ms"] = str(200 + random.randrange(2000))
        return cls(f"topic-{number}", 1 + random.randrange(3), configs)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed makes of a run, before anything has happened."""

    topics: list[TopicPlan]
    idempotent_producers: int
    plain_producers: int
    readers: int
    slow_readers: int
    liars: int
    link: Link
    disk_delay_s: tuple[float, float]
    """How long a sync or a cold read waits for its turn, and its result to be heard of."""
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> Plan:
        random = SimRandom(f"{seed}/plan")
        return cls(
            topics=[TopicPlan.draw(number, random) for number in range(1 + random.randrange(3))],
            idempotent_producers=1 + random.randrange(2),
            plain_producers=random.randrange(3),
            readers=1 + random.randrange(2),
            slow_readers=random.randrange(2),
            liars=random.randrange(2),
            link=Link(
                delay_s=(0.000_05, (0.001, 0.01, 0.05)[random.randrange(3)]),
                partial_rate=random.between(0.0, 0.2),
                reset_rate=0.0005 if random.chance(0.3) else 0.0,
            ),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.1)[random.randrange(3)]),
            mixture=Mixture.draw(random),
        )

    @property
    def places(self) -> list[TopicPartition]:
        return [place for topic in self.topics for place in topic.places]


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


def simulate(seed: int | str, seconds: float = SECONDS) -> Outcome:
    """One run, whole: the same for one seed and length in whatever process."""
    plan = Plan.draw(seed)
    outcome = Outcome(seed)
    with World(seed, link=plan.link, steps_max=STEPS_MAX) as world:
        run = Run(world, plan, outcome.counts)
        run_whole(world, run.scenario(seconds), run.model, outcome)
    return outcome


def run_whole(world: World, scenario: Coroutine[Any, Any, None], model: Model, outcome: Outcome) -> None:
    """Run a scenario to its end and note what came of it."""
    world.run(scenario)
    check_host(model, world)
    outcome.violations = model.violations
    outcome.virtual_s = world.loop.time() - START_S
    outcome.steps = world.loop.steps
    outcome.digest = world.digest()
    outcome.trace = list(world.trace.lines)


class Run:
    def __init__(self, world: World, plan: Plan, counts: dict[str, int]) -> None:
        self.model = Model(world.loop.time)
        self._world = world
        self._plan = plan
        self._counts = counts
        self._topic_ids: dict[str, UUID] = {}
        self._clients: list[Client] = []
        self._running: list[tuple[Client, asyncio.Task[None]]] = []
        host = world.host(
            BROKER,
            disk=plan.mixture.disk,
            wall_skew_ms=world.random.randrange(2000) - 1000,
            thread_delay_s=plan.disk_delay_s,
        )
        self._node = BrokerNode(world, host, self.model, counts)

    async def scenario(self, seconds: float) -> None:
        self._node.start()
        await self._create_topics()
        self._start_clients()
        names = [client.name for client in self._clients]
        nemesis = Nemesis(self._world, self._node, self.model, names, self._plan.mixture, self._counts)
        await nemesis.run(START_S + seconds)
        await nemesis.calm()
        await self._drain()
        await self._verify()
        if not self.model.violations:
            self._node.crash()
            await nemesis.calm()
            await self._verify()
        self._node.check()

    # Clients

    def _client(self, name: str, *, slowness_s: float = 0.0) -> Client:
        if name in self._world.hosts:
            raise ValueError(f"two clients called {name}")
        if slowness_s:
            link = Link(delay_s=self._plan.link.delay_s, buffer_bytes=SLOW_READER_BUFFER_BYTES)
            self._world.net.set_link(name, BROKER, link)
        host = self._world.host(name)
        random = self._world.random.fork(f"client {name}")
        return Client(
            name, host.runtime, self._node, self.model, random, self._topic_ids, self._counts, slowness_s
        )

    def _start_clients(self) -> None:
        plan = self._plan
        for number in range(plan.idempotent_producers):
            client = self._client(f"idempotent-{number}")
            self._start(client, IdempotentProducer(client, self._some_places(client), client.random))
        for number in range(plan.plain_producers):
            client = self._client(f"plain-{number}")
            self._start(client, PlainProducer(client, self._some_places(client), client.random))
        for number in range(plan.readers):
            client = self._client(f"reader-{number}")
            self._start(client, Reader(client, plan.places, client.random))
        for number in range(plan.slow_readers):
            client = self._client(f"slow-{number}", slowness_s=SLOW_READER_PAUSE_S)
            self._start(client, Reader(client, plan.places, client.random))
        for number in range(plan.liars):
            client = self._client(f"liar-{number}")
            self._start(client, Liar(client, plan.places))

    def _some_places(self, client: Client) -> list[TopicPartition]:
        places = self._plan.places
        first = places[client.random.randrange(len(places))]
        return [place for place in places if place == first or client.random.chance(0.5)]

    def _start(self, client: Client, actor: Actor) -> None:
        self._clients.append(client)
        task = client.runtime.tasks.spawn(actor.run(), name=client.name)
        self._running.append((client, task))

    async def _drain(self) -> None:
        """Producers finish what they have begun: in a quiet world everything is acknowledged in the end."""
        for client in self._clients:
            client.is_stopping = True
        deadline_s = self._world.loop.time() + PATIENCE_S
        while not all(task.done() for _, task in self._running):
            if self._world.loop.time() > deadline_s or self.model.violations:
                break
            await self._world.sleep(POLL_S)
        for client, task in self._running:
            if not task.done() and not self.model.violations:
                self.model.fail(None, f"{client.name} to finish in a quiet world", "it goes on")

    # Set-up and the end

    async def _create_topics(self) -> None:
        for topic in self._plan.topics:
            for place in topic.places:
                self.model.add(
                    place,
                    is_flushed=topic.configs.get("flush.messages") == "1",
                    keeps_timestamps=topic.configs.get("message.timestamp.type") != "LogAppendTime",
                )
        client = self._client("admin")
        topic_ids = await self._in_host(client, create_topics(client, self._plan.topics))
        if topic_ids is None:
            self.model.fail(None, "topics to be created in a quiet world", "no answer")
        self._topic_ids.update(topic_ids or {})

    async def _verify(self) -> None:
        """Read every log whole and compare it with what is known."""
        client = self._client(f"verifier-{self._node.life}")
        for place, ledger in self.model.ledgers.items():
            log = await self._in_host(client, read_all(client, place))
            if log is None:
                ledger.fail("the log to be readable in a quiet world", "no end of it")
                return
            check_log(ledger, log)

    async def _in_host(self, client: Client, work: Coroutine[Any, Any, T]) -> T | None:
        """Run a client's work to its end; None where it comes to none in a quiet world."""
        task = client.runtime.tasks.spawn(work, name=client.name)
        deadline_s = self._world.loop.time() + PATIENCE_S
        while not task.done():
            if self._world.loop.time() > deadline_s:
                return None
            await self._world.sleep(POLL_S)
        return task.result()


async def create_topics(client: Client, topics: Sequence[TopicPlan]) -> dict[str, UUID]:
    """Make the topics; their ids."""
    wanted = tuple(
        SimpleNamespace(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(SimpleNamespace(name=name, value=value) for name, value in topic.configs.items()),
        )
        for topic in topics
    )
    answer = await client.ask(
        CREATE_TOPICS, 7, SimpleNamespace(topics=wanted, timeout=1000, validate_only=False)
    )
    for created in answer.topics:
        if created.error_code is not ErrorCode.none:
            client.model.fail(None, f"{created.name} to be created", f"{created.error_code.name}")
    message = SimpleNamespace(
        topics=tuple(SimpleNamespace(name=topic.name, topic_id=None) for topic in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    described = await client.ask(METADATA, 12, message)
    return {topic.name: topic.topic_id for topic in described.topics}
