"""Members of a consumer group (KIP-848) over one broker, some of the classic protocol, and all that can go wrong.

`simulate_consumer_groups(seed)` lets them work for some virtual seconds among crashes, cuts, failing disks and killed
members. Then, in a quiet world, every partition comes to have an owner, and every committed offset is read: once as it
is, and once more after a last power cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client
from moldau.sim.commits import check_offsets
from moldau.sim.fabric import Link
from moldau.sim.nemesis import Mixture
from moldau.sim.random import SimRandom
from moldau.sim.stage import Outcome, Stage, TopicPlan
from moldau.sim.story import simulate_plan, through_trouble
from moldau.sim.workloads.consumer_groups.classic import ClassicMember
from moldau.sim.workloads.consumer_groups.members import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerMember,
    Interest,
)
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.world import World

SECONDS = 15.0
FAULT_EVERY_S = (0.1, 2.0)
GROWS_EVERY_S = (1.0, 8.0)
PARTITIONS_MAX = 6
CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION = 37, 3
BROKER_SETTINGS = {
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "log.cleaner.backoff.ms": "700",
}


class Grower:
    """Gives the topics more partitions now and then. Only the newer protocol tells members of that by itself."""

    def __init__(self, client: Client, topics: dict[str, int]) -> None:
        self._client = client
        self._topics = topics

    async def run(self) -> None:
        client, names = self._client, list(self._topics)
        while not client.is_stopping:
            await client.runtime.tasks.sleep(client.random.between(*GROWS_EVERY_S))
            name = names[client.random.randrange(len(names))]
            if self._topics[name] < PARTITIONS_MAX and not client.is_stopping:
                await self._grow(name, self._topics[name] + 1)

    async def _grow(self, name: str, count: int) -> None:
        topic = SimpleNamespace(name=name, count=count, assignments=None)
        request = SimpleNamespace(topics=(topic,), timeout=1000, validate_only=False)
        answer = await self._client.ask(CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION, request)
        if answer.results[0].error_code in (
            ErrorCode.none,
            ErrorCode.invalid_partitions,
        ):  # or has it already
            self._topics[name] = count
            self._client.count("partitions added")


@dataclass(frozen=True, slots=True)
class ConsumerGroupPlan:
    members: int
    static_members: int
    classic_members: int
    topics: dict[str, int]
    grows: bool
    assignment_interval_ms: int
    is_compacted: bool
    link: Link
    disk_delay_s: tuple[float, float]
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> ConsumerGroupPlan:
        random = SimRandom(f"{seed}/consumer group plan")
        classic_members = random.randrange(3) if random.chance(0.4) else 0
        return cls(
            members=1 + random.randrange(4),
            static_members=random.randrange(3),
            classic_members=classic_members,
            topics={f"work-{number}": 1 + random.randrange(4) for number in range(1 + random.randrange(3))},
            grows=not classic_members and random.chance(0.5),
            assignment_interval_ms=(0, 100, 500)[random.randrange(3)],
            is_compacted=random.chance(0.5),
            link=Link(delay_s=(0.000_05, (0.001, 0.01, 0.05)[random.randrange(3)]), partial_rate=0.05),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.1)[random.randrange(3)]),
            mixture=Mixture.draw(random, kills_clients=True, every_s=FAULT_EVERY_S),
        )

    @property
    def coordinator_topic(self) -> TopicPlan:
        configs = {"cleanup.policy": "compact", "flush.messages": "1", "internal.segment.bytes": "12000"}
        if self.is_compacted:
            configs["min.cleanable.dirty.ratio"] = "0.01"
        return TopicPlan("__consumer_offsets", 2, configs)


def simulate_consumer_groups(seed: int | str, seconds: float = SECONDS) -> Outcome:
    return simulate_plan(seed, seconds, ConsumerGroupPlan.draw(seed), ConsumerGroupRun)


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
        self._topics = dict(plan.topics)
        self._interests: dict[str, Interest] = {}

    async def scenario(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        stage.node.start()
        await stage.create_topics([plan.coordinator_topic, *self._topic_plans])
        for number in range(plan.members):
            stage.play(f"member-{number}", partial(self._member, False))
        for number in range(plan.static_members):
            stage.play(f"static-{number}", partial(self._member, True))
        for number in range(plan.classic_members):
            stage.play(f"classic-{number}", self._classic_member)
        if plan.grows:
            client = stage.client("grower")
            stage.start(client, Grower(client, self._topics))
        await through_trouble(stage, plan.mixture, seconds, self._verify, at_calm=self._settle)

    def _member(self, is_static: bool, client: Client) -> ConsumerMember:
        return ConsumerMember(client, self._group, self._interest(client), is_static=is_static)

    def _classic_member(self, client: Client) -> ClassicMember:
        return ClassicMember(client, self._group, self._interest(client))

    def _interest(self, client: Client) -> Interest:
        interest = self._interests[client.name] = Interest(self._topics, client.random)
        return interest

    async def _settle(self) -> None:
        """Everybody is back and stays, and everything that somebody wants comes to have an owner."""
        stage = self.stage
        for name in stage.mortal_clients:
            stage.revive(name)
        self._group.is_calm = True
        await stage.world.sleep(2 * SESSION_MS / 1000)  # by then those who were killed are out
        if not await stage.until(lambda: not self._unowned()) and not stage.model.violations:
            stage.model.fail(None, "every partition to have an owner", f"none of {self._unowned()}")

    @property
    def _topic_plans(self) -> list[TopicPlan]:
        return [TopicPlan(name, count, {}) for name, count in self._topics.items()]

    def _unowned(self) -> list[TopicPartition]:
        """Of what somebody wants."""
        names = {name for interest in self._interests.values() for name in interest.wanted}
        wanted = [place for topic in self._topic_plans if topic.name in names for place in topic.places]
        return self._group.unowned(wanted)

    async def _verify(self, name: str) -> None:
        """Every offset that was acknowledged is there."""
        places = [place for topic in self._topic_plans for place in topic.places]
        await check_offsets(self.stage, f"{name}-verifier", self._group.commits, GROUP, places)
