"""Members of a consumer group (KIP-848) over one broker, and everything that can go wrong with it.

`simulate_consumer_groups(seed)` lets them work for some virtual seconds among crashes, cuts, failing disks and killed
members. Then, in a quiet world, every partition comes to have an owner, and every committed offset is read: once as it
is, and once more after a last power cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from moldau.sim.client import Client
from moldau.sim.commits import read_offsets
from moldau.sim.fabric import Link
from moldau.sim.loop import START_S
from moldau.sim.nemesis import Mixture, Nemesis
from moldau.sim.random import SimRandom
from moldau.sim.stage import STEPS_MAX, Outcome, Stage, TopicPlan, run_whole
from moldau.sim.workloads.consumer_groups.members import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerMember,
    wanted_places,
)
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.world import World

SECONDS = 15.0
BROKER_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "log.cleaner.backoff.ms": "700",
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupPlan:
    members: int
    static_members: int
    topics: dict[str, int]
    assignment_interval_ms: int
    is_compacted: bool
    link: Link
    disk_delay_s: tuple[float, float]
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> ConsumerGroupPlan:
        random = SimRandom(f"{seed}/consumer group plan")
        return cls(
            members=1 + random.randrange(4),
            static_members=random.randrange(3),
            topics={f"work-{number}": 1 + random.randrange(4) for number in range(1 + random.randrange(3))},
            assignment_interval_ms=(0, 100, 500)[random.randrange(3)],
            is_compacted=random.chance(0.5),
            link=Link(delay_s=(0.000_05, (0.001, 0.01, 0.05)[random.randrange(3)]), partial_rate=0.05),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.1)[random.randrange(3)]),
            mixture=Mixture.draw(random, kills_clients=True),
        )

    @property
    def coordinator_topic(self) -> TopicPlan:
        configs = {"cleanup.policy": "compact", "flush.messages": "1", "internal.segment.bytes": "12000"}
        if self.is_compacted:
            configs["min.cleanable.dirty.ratio"] = "0.01"
        return TopicPlan("__consumer_offsets", 2, configs)

    @property
    def topic_plans(self) -> list[TopicPlan]:
        return [TopicPlan(name, count, {}) for name, count in self.topics.items()]


def simulate_consumer_groups(seed: int | str, seconds: float = SECONDS) -> Outcome:
    """One run, whole: the same for one seed and length in whatever process."""
    plan = ConsumerGroupPlan.draw(seed)
    outcome = Outcome(seed)
    with World(seed, link=plan.link, steps_max=STEPS_MAX) as world:
        run = ConsumerGroupRun(world, plan, outcome.counts)
        run_whole(world, run.scenario(seconds), run.stage.model, outcome)
    return outcome


class ConsumerGroupRun:
    def __init__(self, world: World, plan: ConsumerGroupPlan, counts: dict[str, int]) -> None:
        interval = {"group.consumer.assignment.interval.ms": str(plan.assignment_interval_ms)}
        self.stage = Stage(
            world,
            counts,
            disk=plan.mixture.disk,
            disk_delay_s=plan.disk_delay_s,
            settings=BROKER_SETTINGS | interval,
        )
        patience_s = min(SESSION_MS, REBALANCE_MS) / 1000
        self._group = ConsumerGroupModel(self.stage.model, world.loop.time, patience_s)
        self._plan = plan
        self._members: dict[str, ConsumerMember] = {}

    async def scenario(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        stage.node.start()
        await stage.create_topics([plan.coordinator_topic, *plan.topic_plans])
        for number in range(plan.members):
            stage.play(f"member-{number}", partial(self._member, False))
        for number in range(plan.static_members):
            stage.play(f"static-{number}", partial(self._member, True))
        nemesis = Nemesis(stage, plan.mixture)
        await nemesis.run(START_S + seconds)
        await nemesis.calm()
        await self._settle()
        await stage.drain()
        await self._verify("first")
        if not stage.model.violations:
            stage.node.crash()
            await nemesis.calm()
            await self._verify("second")
        stage.node.check()

    def _member(self, is_static: bool, client: Client) -> ConsumerMember:
        member = ConsumerMember(client, self._group, self._plan.topics, is_static=is_static)
        self._members[client.name] = member
        return member

    async def _settle(self) -> None:
        """Everybody is back and stays, and everything that somebody wants comes to have an owner."""
        stage = self.stage
        for name in stage.mortal_clients:
            stage.revive(name)
        self._group.is_calm = True
        await stage.world.sleep(2 * SESSION_MS / 1000)  # by then those who were killed are out
        if not await stage.until(lambda: not self._unowned()) and not stage.model.violations:
            stage.model.fail(None, "every partition to have an owner", f"none of {self._unowned()}")

    def _unowned(self) -> list[object]:
        return [*self._group.unowned(wanted_places(list(self._members.values()), self._plan.topics))]

    async def _verify(self, name: str) -> None:
        """Every offset that was acknowledged is there."""
        client = self.stage.client(f"{name}-verifier")
        places = [place for topic in self._plan.topic_plans for place in topic.places]

        async def read() -> None:
            while not await read_offsets(client, self._group.commits, GROUP, places):
                await client.pause()

        await self.stage.in_host(client, read(), "offsets to be readable in a quiet world")
