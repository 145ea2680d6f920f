"""The second workload: members of a consumer group over one broker, and everything that can go wrong with it.

`simulate_groups(seed)` lets them work for some virtual seconds among crashes, cuts and failing disks, and then, in a
quiet world, reads every committed offset: once as it is, and once more after a last power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from moldau.sim.client import Client
from moldau.sim.fabric import Link
from moldau.sim.group_members import TOPIC, GroupMember, read_offsets
from moldau.sim.group_model import GroupModel
from moldau.sim.loop import START_S
from moldau.sim.model import Model
from moldau.sim.nemesis import Mixture, Nemesis
from moldau.sim.node import POLL_S, BrokerNode
from moldau.sim.random import SimRandom
from moldau.sim.workload import BROKER, PATIENCE_S, STEPS_MAX, Outcome, TopicPlan, create_topics, run_whole
from moldau.sim.world import World

T = TypeVar("T")

SECONDS = 20.0
COORDINATOR_TOPIC = TopicPlan(
    "__consumer_offsets",
    2,
    {"cleanup.policy": "compact", "flush.messages": "1", "internal.segment.bytes": "20000"},
)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    members: int
    partitions: int
    link: Link
    disk_delay_s: tuple[float, float]
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> GroupPlan:
        random = SimRandom(f"{seed}/group plan")
        return cls(
            members=2 + random.randrange(4),
            partitions=1 + random.randrange(6),
            link=Link(delay_s=(0.000_05, (0.001, 0.01, 0.05)[random.randrange(3)]), partial_rate=0.05),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.1)[random.randrange(3)]),
            mixture=Mixture.draw(random),
        )


def simulate_groups(seed: int | str, seconds: float = SECONDS) -> Outcome:
    """One run, whole: the same for one seed and length in whatever process."""
    plan = GroupPlan.draw(seed)
    outcome = Outcome(seed)
    with World(seed, link=plan.link, steps_max=STEPS_MAX) as world:
        run = GroupRun(world, plan, outcome.counts)
        run_whole(world, run.scenario(seconds), run.model, outcome)
    return outcome


class GroupRun:
    def __init__(self, world: World, plan: GroupPlan, counts: dict[str, int]) -> None:
        self.model = Model(world.loop.time)
        self._groups = GroupModel(self.model)
        self._world = world
        self._plan = plan
        self._counts = counts
        self._topic_ids: dict[str, UUID] = {}
        host = world.host(BROKER, disk=plan.mixture.disk, thread_delay_s=plan.disk_delay_s)
        self._node = BrokerNode(world, host, self.model, counts)

    async def scenario(self, seconds: float) -> None:
        self._node.start()
        await self._create_topics()
        clients = [self._client(f"member-{number}") for number in range(self._plan.members)]
        running = [self._start(client) for client in clients]
        names = [client.name for client in clients]
        nemesis = Nemesis(self._world, self._node, self.model, names, self._plan.mixture, self._counts)
        await nemesis.run(START_S + seconds)
        await nemesis.calm()
        for client in clients:
            client.is_stopping = True
        await self._until(lambda: all(task.done() for task in running), "the members to end")
        await self._verify("first")
        if not self.model.violations:
            self._node.crash()
            await nemesis.calm()
            await self._verify("second")
        self._node.check()

    def _client(self, name: str) -> Client:
        host = self._world.host(name)
        random = self._world.random.fork(f"client {name}")
        return Client(name, host.runtime, self._node, self.model, random, self._topic_ids, self._counts)

    def _start(self, client: Client) -> asyncio.Task[None]:
        member = GroupMember(client, self._groups, self._plan.partitions)
        return client.runtime.tasks.spawn(member.run(), name=client.name)

    async def _create_topics(self) -> None:
        client = self._client("admin")
        topics = [COORDINATOR_TOPIC, TopicPlan(TOPIC, self._plan.partitions, {})]
        topic_ids = await self._in_host(client, create_topics(client, topics), "topics to be created")
        self._topic_ids.update(topic_ids or {})

    async def _verify(self, name: str) -> None:
        """Every offset that was acknowledged is there."""
        client = self._client(f"{name}-verifier")
        partitions = tuple(range(self._plan.partitions))

        async def read() -> None:
            while not await read_offsets(client, self._groups, partitions):
                await client.pause()

        await self._in_host(client, read(), "offsets to be readable in a quiet world")

    async def _in_host(self, client: Client, work: Coroutine[Any, Any, T], what: str) -> T | None:
        task = client.runtime.tasks.spawn(work, name=client.name)
        await self._until(task.done, what)
        return task.result() if task.done() else None

    async def _until(self, condition: Any, what: str) -> None:
        deadline_s = self._world.loop.time() + PATIENCE_S
        while not condition():
            if self._world.loop.time() > deadline_s:
                self.model.fail(None, what, "it does not come to that")
                return
            await self._world.sleep(POLL_S)
