"""A cluster of three to five brokers with its store, clients of all kinds, and everything that can go wrong with them.

`simulate_cluster(seed)` lets them work for some virtual seconds of trouble. Then, in a quiet world, everything must
converge: all brokers up and of one mind, all in-sync sets full. Everything is read and held against what clients were
told, replicas are compared byte for byte; and once more after all brokers have ended at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.commits import check_offsets
from moldau.sim.fetching import READ_COMMITTED, fetch_one, read_all
from moldau.sim.stage import Outcome, Stage
from moldau.sim.story import simulate_plan
from moldau.sim.workloads.cluster.admin import OWN, elect_anyone
from moldau.sim.workloads.cluster.cast import WORK_PARTITIONS, Cast
from moldau.sim.workloads.cluster.nemesis import ClusterNemesis
from moldau.sim.workloads.cluster.oracle import Oracle
from moldau.sim.workloads.cluster.plan import ClusterPlan, places_of
from moldau.sim.workloads.cluster.power import Power
from moldau.sim.workloads.cluster.replicas import Difference, differences, strays, why_not_settled
from moldau.sim.workloads.cluster.store_view import Placed, StoreView
from moldau.sim.workloads.consumer_groups.members import GROUP as CONSUMER_GROUP
from moldau.sim.workloads.consumer_groups.workload import BROKER_SETTINGS as GROUP_SETTINGS
from moldau.sim.workloads.groups.members import GROUP as CLASSIC_GROUP
from moldau.sim.workloads.groups.members import TOPIC as WORK
from moldau.sim.workloads.log.checkers import check_log
from moldau.sim.workloads.transactions.checkers import Committed, check_copies, check_partition, check_whole
from moldau.sim.workloads.transactions.copier import read_group_offset
from moldau.sim.workloads.transactions.producers import TransactionalProducer
from moldau.sim.world import World

SECONDS = 6.0
OFFLINE_PATIENCE_S = 30.0
SETTLE_PATIENCE_S = 60.0
LOOKS_MAX = 10
LOOK_AGAIN_S = 1.0
HEIR_TIMEOUT_MS = 30_000
BROKER_SETTINGS = GROUP_SETTINGS | {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "replica.lag.time.max.ms": "700",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
}


def simulate_cluster(seed: int | str, seconds: float = SECONDS) -> Outcome:
    return simulate_plan(seed, seconds, ClusterPlan.draw(seed), ClusterRun)


class ClusterRun:
    def __init__(self, world: World, plan: ClusterPlan, counts: dict[str, int]) -> None:
        self.stage = Stage(
            world,
            counts,
            disk=plan.mixture.disk,
            disk_delay_s=plan.disk_delay_s,
            settings=BROKER_SETTINGS | plan.settings,
            brokers=plan.brokers,
        )
        self._plan = plan
        self._oracle = Oracle(self.stage)
        self._cast = Cast(self.stage, plan, self._oracle)
        self._heirs = 0

    async def scenario(self, seconds: float) -> None:
        with self._oracle.watching():
            await self._play(seconds)

    async def _play(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        assert stage.store is not None
        stage.store.start()
        nemesis = ClusterNemesis(stage, plan.mixture, self._allowed_power())
        await nemesis.calm()
        self._cast.add_ledgers()
        await stage.create_topics(plan.topics)
        if stage.model.violations:
            return
        stage.model.is_linear = False
        self._cast.start()
        await nemesis.run(stage.world.loop.time() + seconds)
        await nemesis.calm()
        await self._verify("first")
        if plan.ends_twice and not stage.model.violations:
            (nemesis.crash_all if plan.is_flushed and not plan.mixture.keeps_power else nemesis.kill_all)()
            await nemesis.calm()
            await self._verify("second")
        for node in stage.nodes:
            node.check()

    def _allowed_power(self) -> Power:
        """Where everything is flushed before it is acknowledged, all power may go at once."""
        plan = self._plan
        assert self.stage.store is not None
        return Power(
            self.stage.model,
            self.stage.nodes,
            StoreView(self.stage.store),
            self._oracle.committed_of,
            spared=plan.brokers if plan.is_flushed else plan.min_insync - 1,
            is_promised=self._is_promised,
        )

    def _is_promised(self, placed: Placed) -> bool:
        was_led_uncleanly = self._oracle.was_led_uncleanly(placed.topic_id, placed.number)
        return self._plan.is_promised(placed.topic) and not was_led_uncleanly

    def _is_to_last(self, placed: Placed) -> bool:
        """An operator may make a topic while few brokers are there: as few have all of it at first."""
        return self._is_promised(placed) and not placed.topic.startswith(OWN)

    # The end

    async def _verify(self, name: str) -> None:
        """Everything converges, and all that can be read is as it must be."""
        stage, cast = self.stage, self._cast
        await self._give_up_the_lost()
        await stage.drain()
        if name == "first" and cast.admin is not None:
            client = stage.client("last-operator")
            cast.admin.act_as(client)
            await stage.in_host(client, cast.admin.end(), "what was asked for to be called off")
        await self._settle()
        if stage.model.violations:
            return
        stage.model.is_linear = True
        client = stage.client(f"{name}-verifier")
        if self._plan.transactional:
            await self._inherit()
            await stage.in_host(client, self._until_stable(client), "no transaction to stay open")
        committed: dict[TopicPartition, Committed] = {}
        for place, ledger in stage.model.ledgers.items():
            log = await stage.in_host(client, read_all(client, place), f"{place} to be readable")
            if log is None:
                return
            if place in places_of(self._plan.transactional):
                committed[place] = check_partition(cast.transactions, ledger, log)
            else:
                check_log(ledger, [record for _, records in log for record in records])
        check_whole(stage.model, cast.transactions, committed)
        await self._check_groups(name)
        await self._check_copies(client, committed)
        await self._settle()
        await self._check_replicas()

    async def _settle(self) -> None:
        stage, nodes = self.stage, self.stage.nodes
        is_settled = await stage.until(lambda: why_not_settled(nodes) is None, OFFLINE_PATIENCE_S)
        if not is_settled:
            await self._give_up_the_lost()
            is_settled = await stage.until(lambda: why_not_settled(nodes) is None, SETTLE_PATIENCE_S)
        if not is_settled and not stage.model.violations:
            stage.model.fail(None, "the cluster to converge in a quiet world", str(why_not_settled(nodes)))

    async def _give_up_the_lost(self) -> None:
        """Where the last one in sync has lost its disk nobody leads, until an operator goes on with what is left."""
        assert self.stage.store is not None
        offline = [
            placed
            for placed in StoreView(self.stage.store).partitions()
            if not placed.state.isr and not placed.state.elr and not self._is_to_last(placed)
        ]
        if offline:
            self._oracle.allow_unclean((placed.topic_id, placed.number) for placed in offline)
            client = self.stage.client(f"rescuer-{self.stage.world.loop.time()}")
            places = [TopicPartition(placed.topic, placed.number) for placed in offline]
            await self.stage.in_host(client, elect_anyone(client, places), "an unclean election")

    async def _check_replicas(self) -> None:
        """Logs that are being compacted or deleted at this very moment are looked at again."""
        found: list[Difference] = []
        for _ in range(LOOKS_MAX):
            if self.stage.model.violations:
                return
            found = [*differences(self.stage.nodes), *strays(self.stage.nodes)]
            if not found:
                return
            await self.stage.world.sleep(LOOK_AGAIN_S)
        for place, expected, other in found:
            self.stage.model.fail(place, expected, other)

    async def _until_stable(self, client: Client) -> None:
        """The last stable offset of every partition is its end."""
        for place in places_of(self._plan.transactional):
            while True:
                try:
                    part = await fetch_one(client, await client.wire(place), place, 0, READ_COMMITTED)
                except Disconnected:
                    continue
                if part.error_code:
                    client.mistrust(place)
                elif part.last_stable_offset == part.high_watermark:
                    break
                await client.pause()

    async def _inherit(self) -> None:
        """A new producer of every transactional id is heard."""
        for transactional_id in self._cast.transactional_ids:
            self._heirs += 1
            client = self.stage.client(f"heir-{self._heirs}")
            heir = TransactionalProducer(
                client,
                self._cast.transactions,
                transactional_id,
                places_of(self._plan.transactional),
                owns_epochs=client.random.chance(0.5),
                timeout_ms=HEIR_TIMEOUT_MS,
            )
            what = f"a new producer of {transactional_id} to commit a transaction"
            await self.stage.in_host(client, heir.commit_one(), what)

    async def _check_copies(self, client: Client, committed: Mapping[TopicPartition, Committed]) -> None:
        offsets: dict[int, int] = {}
        for partition in range(self._plan.sources):
            reading = read_group_offset(client, self._cast.transactions, partition)
            offset = await self.stage.in_host(client, reading, "the copiers' offsets to be readable")
            if offset is None:
                return
            offsets[partition] = offset
        check_copies(self.stage.model, self._cast.transactions, committed, offsets)

    async def _check_groups(self, name: str) -> None:
        places = [TopicPartition(WORK, index) for index in range(WORK_PARTITIONS)]
        if self._plan.classic_members:
            commits = self._cast.classic.commits
            await check_offsets(self.stage, f"{name}-classic", commits, CLASSIC_GROUP, places)
        if self._plan.consumer_members:
            commits = self._cast.consumers.commits
            await check_offsets(self.stage, f"{name}-consumers", commits, CONSUMER_GROUP, places)
