"""The second workload: members of a consumer group over one broker, and everything that can go wrong with it.

`simulate_groups(seed)` lets them work for some virtual seconds among crashes, cuts and failing disks, and then, in a
quiet world, reads every committed offset: once as it is, and once more after a last power cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.sim.commits import check_offsets
from moldau.sim.fabric import Link
from moldau.sim.nemesis import Mixture
from moldau.sim.random import SimRandom
from moldau.sim.stage import Outcome, Stage, TopicPlan
from moldau.sim.story import simulate_plan, through_trouble
from moldau.sim.workloads.groups.members import GROUP, TOPIC, GroupMember
from moldau.sim.workloads.groups.model import GroupModel
from moldau.sim.world import World

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
    return simulate_plan(seed, seconds, GroupPlan.draw(seed), GroupRun)


class GroupRun:
    def __init__(self, world: World, plan: GroupPlan, counts: dict[str, int]) -> None:
        self.stage = Stage(world, counts, disk=plan.mixture.disk, disk_delay_s=plan.disk_delay_s)
        self._groups = GroupModel(self.stage.model)
        self._plan = plan

    async def scenario(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        stage.node.start()
        await stage.create_topics([COORDINATOR_TOPIC, TopicPlan(TOPIC, plan.partitions, {})])
        for number in range(plan.members):
            client = stage.client(f"member-{number}")
            stage.start(client, GroupMember(client, self._groups, plan.partitions))
        await through_trouble(stage, plan.mixture, seconds, self._verify)

    async def _verify(self, name: str) -> None:
        """Every offset that was acknowledged is there."""
        places = TopicPlan(TOPIC, self._plan.partitions, {}).places
        await check_offsets(self.stage, f"{name}-verifier", self._groups.commits, GROUP, places)
