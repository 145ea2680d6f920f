"""Transactional producers, copiers and readers of committed records over one broker, and everything that can go wrong.

`simulate_transactions(seed)` lets them work for some virtual seconds among crashes, cuts, failing disks and killed
clients. Then, in a quiet world, transactions that nobody ends are timed out, every transactional id works again, and
everything is read: once as it is, and once more after a last crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.fabric import Link
from moldau.sim.fetching import READ_COMMITTED, fetch_one, read_all
from moldau.sim.nemesis import Mixture
from moldau.sim.random import SimRandom
from moldau.sim.stage import Outcome, Stage, TopicPlan
from moldau.sim.story import simulate_plan, through_trouble
from moldau.sim.workloads.consumer_groups.members import REBALANCE_MS, SESSION_MS
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.workloads.consumer_groups.workload import BROKER_SETTINGS as GROUP_SETTINGS
from moldau.sim.workloads.log.producers import IdempotentProducer, PlainProducer
from moldau.sim.workloads.transactions.checkers import Committed, check_copies, check_partition, check_whole
from moldau.sim.workloads.transactions.copier import Copier, GroupCopier, read_group_offset
from moldau.sim.workloads.transactions.model import TransactionModel
from moldau.sim.workloads.transactions.producers import TransactionalProducer
from moldau.sim.workloads.transactions.protocol import SOURCE
from moldau.sim.workloads.transactions.readers import AnyReader, CommittedReader
from moldau.sim.world import World

SECONDS = 10.0
FAULT_EVERY_S = (0.1, 2.5)
"""A transaction takes many requests: with less time between the faults hardly any would come to its end."""
SINK = "sink"
FILLER_THINK_S = (0.3, 1.0)
"""Of producers without transactions, whose records lie between those of the others."""
HEIR_TIMEOUT_MS = 30_000
GROUP_PATIENCE_S = min(SESSION_MS, REBALANCE_MS) / 1000
BROKER_SETTINGS = GROUP_SETTINGS | {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    sources: int
    sinks: int
    producer_ids: int
    instances: int
    """Of each transactional id: with more than one they fence each other."""
    copiers_form_a_group: bool
    """Otherwise each source partition has a transactional id of its own."""
    has_plain_producer: bool
    has_idempotent_producer: bool
    is_flushed: bool
    """Otherwise the power is never cut."""
    is_compacted: bool
    """Whether the coordinators' topics are, all the time."""
    ends_suddenly: bool
    """All clients are killed in the end, with what they have open."""
    link: Link
    disk_delay_s: tuple[float, float]
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> TransactionPlan:
        random = SimRandom(f"{seed}/transaction plan")
        is_flushed = random.chance(0.7)
        mixture = Mixture.draw(random, kills_clients=True, every_s=FAULT_EVERY_S)
        return cls(
            sources=1 + random.randrange(2),
            sinks=1 + random.randrange(3),
            producer_ids=1 + random.randrange(2),
            instances=1 + random.randrange(2),
            copiers_form_a_group=random.chance(0.5),
            has_plain_producer=random.chance(0.5),
            has_idempotent_producer=random.chance(0.5),
            is_flushed=is_flushed,
            is_compacted=random.chance(0.5),
            ends_suddenly=random.chance(0.5),
            link=Link(
                delay_s=(0.000_05, (0.001, 0.01, 0.05)[random.randrange(3)]),
                partial_rate=random.between(0.0, 0.1),
            ),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.1)[random.randrange(3)]),
            mixture=mixture if is_flushed else mixture.without_power_cuts(),
        )

    @property
    def topics(self) -> list[TopicPlan]:
        flushed = {"flush.messages": "1"} if self.is_flushed else {}
        inner = flushed | {"cleanup.policy": "compact", "internal.segment.bytes": "6000"}
        if self.is_compacted:
            inner |= {"min.cleanable.dirty.ratio": "0.01"}
        outer = flushed | {"internal.segment.bytes": "8000", "index.interval.bytes": "500"}
        return [
            TopicPlan("__consumer_offsets", 2, inner),
            TopicPlan("__transaction_state", 2, inner),
            TopicPlan(SOURCE, self.sources, outer),
            TopicPlan(SINK, self.sinks, outer),
        ]

    @property
    def source_places(self) -> list[TopicPartition]:
        return [TopicPartition(SOURCE, index) for index in range(self.sources)]

    @property
    def sink_places(self) -> list[TopicPartition]:
        return [TopicPartition(SINK, index) for index in range(self.sinks)]

    @property
    def places(self) -> list[TopicPartition]:
        return self.source_places + self.sink_places


def simulate_transactions(seed: int | str, seconds: float = SECONDS) -> Outcome:
    return simulate_plan(seed, seconds, TransactionPlan.draw(seed), TransactionRun)


class TransactionRun:
    def __init__(self, world: World, plan: TransactionPlan, counts: dict[str, int]) -> None:
        self.stage = Stage(
            world,
            counts,
            disk=plan.mixture.disk,
            disk_delay_s=plan.disk_delay_s,
            settings=BROKER_SETTINGS,
        )
        self._transactions = TransactionModel(self.stage.model)
        self._group = ConsumerGroupModel(self.stage.model, world.loop.time, GROUP_PATIENCE_S)
        self._plan = plan
        self._ids: list[str] = []
        self._heirs = 0

    async def scenario(self, seconds: float) -> None:
        stage, plan = self.stage, self._plan
        for place in plan.places:
            stage.model.add(place, is_flushed=plan.is_flushed, keeps_timestamps=True)
        stage.node.start()
        await stage.create_topics(plan.topics)
        self._start_writers()
        self._start_readers()
        await through_trouble(stage, plan.mixture, seconds, self._verify, at_calm=self._end_suddenly)

    async def _end_suddenly(self) -> None:
        if self._plan.ends_suddenly:
            for name in self.stage.mortal_clients:
                self.stage.kill_client(name)

    # ---- clients --------------------------------------------------------------------------------------------

    def _start_writers(self) -> None:
        stage, plan = self.stage, self._plan
        random = stage.world.random.fork("versions")
        for number in range(plan.producer_ids):
            for name in self._instances(f"producer-{number}"):
                stage.play(name, partial(self._producer, self._ids[-1], random.chance(0.5)))
        if plan.copiers_form_a_group:
            for number in range(plan.sources + 1):
                self._ids.append(f"copier-{number}")
                stage.play(self._ids[-1], partial(self._group_copier, random.chance(0.5)))
        else:
            for number in range(plan.sources):
                for name in self._instances(f"copier-{number}"):
                    stage.play(name, partial(self._copier, self._ids[-1], number, random.chance(0.5)))
        if plan.has_plain_producer:
            client = stage.client("plain")
            stage.start(client, PlainProducer(client, plan.places, client.random, FILLER_THINK_S))
        if plan.has_idempotent_producer:
            client = stage.client("idempotent")
            stage.start(client, IdempotentProducer(client, plan.places, client.random, FILLER_THINK_S))

    def _instances(self, transactional_id: str) -> list[str]:
        """The names of those who share a new transactional id."""
        self._ids.append(transactional_id)
        return [f"{transactional_id}-{instance}" for instance in "ab"[: self._plan.instances]]

    def _producer(self, transactional_id: str, owns_epochs: bool, client: Client) -> TransactionalProducer:
        return TransactionalProducer(
            client, self._transactions, transactional_id, self._plan.places, owns_epochs=owns_epochs
        )

    def _copier(self, transactional_id: str, partition: int, owns_epochs: bool, client: Client) -> Copier:
        places = self._plan.sink_places
        return Copier(
            client, self._transactions, transactional_id, partition, places, owns_epochs=owns_epochs
        )

    def _group_copier(self, owns_epochs: bool, client: Client) -> GroupCopier:
        plan = self._plan
        return GroupCopier(
            client,
            self._transactions,
            self._group,
            plan.sources,
            plan.sink_places,
            owns_epochs=owns_epochs,
        )

    def _start_readers(self) -> None:
        stage, places = self.stage, self._plan.places
        for number in range(2):
            client = stage.client(f"committed-{number}")
            stage.start(client, CommittedReader(client, self._transactions, places, client.random))
        client = stage.client("everything")
        stage.start(client, AnyReader(client, self._transactions, places, client.random))

    # ---- the end --------------------------------------------------------------------------------------------

    async def _verify(self, name: str) -> None:
        """Nothing hangs, all transactional ids work, and everything that can be read is as it must be."""
        stage, plan = self.stage, self._plan
        client = stage.client(f"{name}-verifier")
        settled = "no transaction to stay open when its time is up"
        await stage.in_host(client, self._settle(client), settled)
        await self._inherit()
        await stage.in_host(client, self._settle(client), settled)
        committed: dict[TopicPartition, Committed] = {}
        for place, ledger in stage.model.ledgers.items():
            log = await stage.in_host(client, read_all(client, place), f"{place} to be readable")
            if log is None:
                return
            committed[place] = check_partition(self._transactions, ledger, log)
        check_whole(stage.model, self._transactions, committed)
        offsets: dict[int, int] = {}
        for partition in range(plan.sources):
            reading = read_group_offset(client, self._transactions, partition)
            offset = await stage.in_host(client, reading, "the group's offsets to be readable")
            if offset is None:
                return
            offsets[partition] = offset
        check_copies(stage.model, self._transactions, committed, offsets)

    async def _settle(self, client: Client) -> None:
        """Until the last stable offset of every partition is its end."""
        for place in self._plan.places:
            while True:
                try:
                    part = await fetch_one(client, await client.wire(place), place, 0, READ_COMMITTED)
                except Disconnected:
                    continue
                if part.error_code:
                    client.mistrust(place)
                if not part.error_code and part.last_stable_offset == part.high_watermark:
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
                self._plan.sink_places,
                owns_epochs=client.random.chance(0.5),
                timeout_ms=HEIR_TIMEOUT_MS,
            )
            what = f"a new producer of {transactional_id} to commit a transaction"
            await self.stage.in_host(client, heir.commit_one(), what)
