"""Clients that produce and fetch over one broker, and everything that can go wrong with them.

`simulate(seed)` makes a world, draws its topics, clients and faults from the seed, lets it run for some virtual
seconds, and then, in a quiet world, reads every log to its end: once as it is, and once more after a last power cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.ids import TopicPartition
from moldau.sim.client import Client
from moldau.sim.fabric import Link
from moldau.sim.fetching import read_all
from moldau.sim.nemesis import Mixture
from moldau.sim.random import SimRandom
from moldau.sim.stage import BROKER, Outcome, Stage, TopicPlan
from moldau.sim.story import simulate_plan, through_trouble
from moldau.sim.workloads.log.checkers import check_log
from moldau.sim.workloads.log.liar import Liar
from moldau.sim.workloads.log.producers import IdempotentProducer, PlainProducer
from moldau.sim.workloads.log.readers import Reader
from moldau.sim.world import World

SECONDS = 6.0
SLOW_READER_BUFFER_BYTES = 4096
SLOW_READER_PAUSE_S = 0.02


def draw_topic(number: int, random: SimRandom) -> TopicPlan:
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
        configs["compression.type"] = ("gzip", "lz4", "zstd", "snappy", "uncompressed")[random.randrange(5)]
    if random.chance(0.2):
        configs["segment.ms"] = str(200 + random.randrange(2000))
    return TopicPlan(f"topic-{number}", 1 + random.randrange(3), configs)


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
            topics=[draw_topic(number, random) for number in range(1 + random.randrange(3))],
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


def simulate(seed: int | str, seconds: float = SECONDS) -> Outcome:
    return simulate_plan(seed, seconds, Plan.draw(seed), Run)


class Run:
    def __init__(self, world: World, plan: Plan, counts: dict[str, int]) -> None:
        self.stage = Stage(
            world,
            counts,
            disk=plan.mixture.disk,
            disk_delay_s=plan.disk_delay_s,
            wall_skew_ms=world.random.randrange(2000) - 1000,
        )
        self._plan = plan

    async def scenario(self, seconds: float) -> None:
        stage = self.stage
        stage.node.start()
        await self._create_topics()
        self._start_clients()
        await through_trouble(stage, self._plan.mixture, seconds, self._verify)

    async def _create_topics(self) -> None:
        for topic in self._plan.topics:
            for place in topic.places:
                self.stage.model.add(
                    place,
                    is_flushed=topic.configs.get("flush.messages") == "1",
                    keeps_timestamps="message.timestamp.type" not in topic.configs,
                )
        await self.stage.create_topics(self._plan.topics)

    def _start_clients(self) -> None:
        stage, plan = self.stage, self._plan
        for number in range(plan.idempotent_producers):
            client = stage.client(f"idempotent-{number}")
            stage.start(client, IdempotentProducer(client, self._some_places(client), client.random))
        for number in range(plan.plain_producers):
            client = stage.client(f"plain-{number}")
            stage.start(client, PlainProducer(client, self._some_places(client), client.random))
        for number in range(plan.readers):
            client = stage.client(f"reader-{number}")
            stage.start(client, Reader(client, plan.places, client.random))
        for number in range(plan.slow_readers):
            client = self._slow_client(f"slow-{number}")
            stage.start(client, Reader(client, plan.places, client.random))
        for number in range(plan.liars):
            client = stage.client(f"liar-{number}")
            stage.start(client, Liar(client, plan.places))

    def _slow_client(self, name: str) -> Client:
        link = Link(delay_s=self._plan.link.delay_s, buffer_bytes=SLOW_READER_BUFFER_BYTES)
        self.stage.world.net.set_link(name, BROKER, link)
        return self.stage.client(name, slowness_s=SLOW_READER_PAUSE_S)

    def _some_places(self, client: Client) -> list[TopicPartition]:
        places = self._plan.places
        first = places[client.random.randrange(len(places))]
        return [place for place in places if place == first or client.random.chance(0.5)]

    async def _verify(self, name: str) -> None:
        """Every log, read to its end."""
        client = self.stage.client(f"{name}-verifier")
        for place, ledger in self.stage.model.ledgers.items():
            log = await self.stage.in_host(client, read_all(client, place), f"{place} to be readable")
            if log is None:
                return
            check_log(ledger, [record for _, records in log for record in records])
