"""A cluster of three to five brokers with its store, clients of all kinds, and everything that can go wrong with them.

`simulate_cluster(seed)` lets them work for some virtual seconds of trouble. Then, in a quiet world, everything must
converge: all brokers up and of one mind, all in-sync sets full. Everything is read and held against what clients were
told, replicas are compared byte for byte; and once more after all brokers have ended at once.
"""

from __future__ import annotations

from functools import partial

from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.commits import check_offsets
from moldau.sim.fetching import READ_COMMITTED, fetch_one, read_all
from moldau.sim.model import Ledger
from moldau.sim.stage import Outcome, Stage
from moldau.sim.story import simulate_plan
from moldau.sim.workloads.cluster.admin import Admin
from moldau.sim.workloads.cluster.model import WeakLedger
from moldau.sim.workloads.cluster.nemesis import ClusterNemesis
from moldau.sim.workloads.cluster.oracle import Oracle
from moldau.sim.workloads.cluster.plan import ClusterPlan, places_of
from moldau.sim.workloads.cluster.power import Power
from moldau.sim.workloads.cluster.readers import NearReader, rack_of
from moldau.sim.workloads.cluster.replicas import check_replicas, why_not_settled
from moldau.sim.workloads.cluster.store_view import StoreView
from moldau.sim.workloads.consumer_groups.members import GROUP as CONSUMER_GROUP
from moldau.sim.workloads.consumer_groups.members import SESSION_MS, ConsumerMember, Interest
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.workloads.consumer_groups.workload import BROKER_SETTINGS as GROUP_SETTINGS
from moldau.sim.workloads.groups.members import GROUP as CLASSIC_GROUP
from moldau.sim.workloads.groups.members import TOPIC as WORK
from moldau.sim.workloads.groups.members import GroupMember
from moldau.sim.workloads.groups.model import GroupModel
from moldau.sim.workloads.log.checkers import check_log
from moldau.sim.workloads.log.producers import IdempotentProducer, PlainProducer
from moldau.sim.workloads.log.readers import Reader
from moldau.sim.workloads.transactions.checkers import Committed, check_partition, check_whole
from moldau.sim.workloads.transactions.model import TransactionModel
from moldau.sim.workloads.transactions.producers import TransactionalProducer
from moldau.sim.workloads.transactions.readers import AnyReader, CommittedReader
from moldau.sim.world import World

SECONDS = 6.0
THINK_S = (0.05, 0.4)
WORK_PARTITIONS = 3
SETTLE_PATIENCE_S = 90.0
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
        model = self.stage.model
        self._plan = plan
        self._oracle = Oracle(self.stage)
        self._transactions = TransactionModel(model)
        self._classic = GroupModel(model)
        self._consumers = ConsumerGroupModel(model, world.loop.time, SESSION_MS / 1000)
        self._ids: list[str] = []
        self._heirs = 0
        self._admin: Admin | None = None

    async def scenario(self, seconds: float) -> None:
        with self._oracle.watching():
            await self._play(seconds)

    async def _play(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        assert stage.store is not None
        stage.store.start()
        nemesis = ClusterNemesis(stage, plan.mixture, self._allowed_power())
        await nemesis.calm()
        for topic in plan.data_topics:
            for place in topic.places:
                kind = WeakLedger if topic in plan.weak else Ledger
                stage.model.add(place, is_flushed=kind is Ledger, keeps_timestamps=True, kind=kind)
        await stage.create_topics(plan.topics)
        if stage.model.violations:
            return
        stage.model.is_linear = False
        self._start_clients()
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
            unpromised=[topic.name for topic in plan.weak],
        )

    # Clients

    def _start_clients(self) -> None:
        stage, plan = self.stage, self._plan
        places = places_of([*plan.safe, *plan.weak])
        for number in range(plan.idempotent_producers):
            client = stage.client(f"idempotent-{number}")
            stage.start(
                client, IdempotentProducer(client, self._some(client, places), client.random, THINK_S)
            )
        for number in range(plan.plain_producers):
            client = stage.client(f"plain-{number}")
            stage.start(client, PlainProducer(client, self._some(client, places), client.random, THINK_S))
        for number in range(plan.readers):
            client = stage.client(f"reader-{number}")
            stage.start(client, Reader(client, places, client.random))
        for number in range(plan.near_readers):
            client = stage.client(f"near-{number}")
            rack = rack_of(1 + client.random.randrange(plan.brokers))
            stage.start(client, NearReader(client, places, rack, self._oracle.committed))
        if plan.transactional:
            self._start_transactions(places_of(plan.transactional))
        for number in range(plan.classic_members):
            client = stage.client(f"classic-{number}")
            stage.start(client, GroupMember(client, self._classic, WORK_PARTITIONS))
        for number in range(plan.consumer_members):
            stage.play(f"consumer-{number}", self._consumer)
        if plan.has_admin:
            client = stage.client("operator")
            folders = plan.log_dirs.split(",")
            self._admin = Admin(client, places_of(plan.topics), plan.brokers, plan.replicas, folders)
            stage.start(client, self._admin)

    def _some(self, client: Client, places: list[TopicPartition]) -> list[TopicPartition]:
        first = places[client.random.randrange(len(places))]
        return [place for place in places if place == first or client.random.chance(0.5)]

    def _start_transactions(self, places: list[TopicPartition]) -> None:
        stage, plan = self.stage, self._plan
        random = stage.world.random.fork("versions")
        for number in range(plan.transactional_ids):
            self._ids.append(f"transactional-{number}")
            for instance in "ab"[: plan.instances]:
                owns_epochs = random.chance(0.5)
                stage.play(
                    f"{self._ids[-1]}-{instance}",
                    partial(self._producer, self._ids[-1], places, owns_epochs),
                )
        client = stage.client("committed")
        stage.start(client, CommittedReader(client, self._transactions, places, client.random))
        client = stage.client("everything")
        stage.start(client, AnyReader(client, self._transactions, places, client.random))

    def _producer(
        self, transactional_id: str, places: list[TopicPartition], owns_epochs: bool, client: Client
    ) -> TransactionalProducer:
        return TransactionalProducer(
            client, self._transactions, transactional_id, places, owns_epochs=owns_epochs
        )

    def _consumer(self, client: Client) -> ConsumerMember:
        return ConsumerMember(client, self._consumers, Interest({WORK: WORK_PARTITIONS}, client.random))

    # The end

    async def _verify(self, name: str) -> None:
        """Everything converges, and all that can be read is as it must be."""
        stage = self.stage
        await stage.drain()
        if name == "first" and self._admin is not None:
            client = stage.client("last-operator")
            self._admin.act_as(client)
            await stage.in_host(client, self._admin.end(), "what was asked for to be called off")
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
                committed[place] = check_partition(self._transactions, ledger, log)
            else:
                check_log(ledger, [record for _, records in log for record in records])
        check_whole(stage.model, self._transactions, committed)
        await self._check_groups(name)
        await self._settle()
        check_replicas(stage.model, stage.nodes)

    async def _settle(self) -> None:
        stage, nodes = self.stage, self.stage.nodes
        is_settled = await stage.until(lambda: why_not_settled(nodes) is None, SETTLE_PATIENCE_S)
        if not is_settled and not stage.model.violations:
            stage.model.fail(None, "the cluster to converge in a quiet world", str(why_not_settled(nodes)))

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
        for transactional_id in self._ids:
            self._heirs += 1
            client = self.stage.client(f"heir-{self._heirs}")
            heir = TransactionalProducer(
                client,
                self._transactions,
                transactional_id,
                places_of(self._plan.transactional),
                owns_epochs=client.random.chance(0.5),
                timeout_ms=HEIR_TIMEOUT_MS,
            )
            what = f"a new producer of {transactional_id} to commit a transaction"
            await self.stage.in_host(client, heir.commit_one(), what)

    async def _check_groups(self, name: str) -> None:
        places = [TopicPartition(WORK, index) for index in range(WORK_PARTITIONS)]
        if self._plan.classic_members:
            commits = self._classic.commits
            await check_offsets(self.stage, f"{name}-classic", commits, CLASSIC_GROUP, places)
        if self._plan.consumer_members:
            commits = self._consumers.commits
            await check_offsets(self.stage, f"{name}-consumers", commits, CONSUMER_GROUP, places)
