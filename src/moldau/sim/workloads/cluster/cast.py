"""Who plays in a run of a cluster: its clients, and the models of what they were told."""

from __future__ import annotations

from functools import partial

from moldau.base.ids import TopicPartition
from moldau.sim.client import Client
from moldau.sim.model import Ledger
from moldau.sim.stage import Actor, Stage, TopicPlan
from moldau.sim.workloads.cluster.admin import Admin
from moldau.sim.workloads.cluster.model import CompactedLedger, TrimmedLedger, UncleanLedger, WeakLedger
from moldau.sim.workloads.cluster.oracle import Oracle
from moldau.sim.workloads.cluster.plan import ClusterPlan, places_of
from moldau.sim.workloads.cluster.readers import NearReader, rack_of
from moldau.sim.workloads.cluster.store_view import StoreView
from moldau.sim.workloads.cluster.trimmer import Trimmer
from moldau.sim.workloads.consumer_groups.members import SESSION_MS, ConsumerMember, Interest
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.workloads.groups.members import TOPIC as WORK
from moldau.sim.workloads.groups.members import GroupMember
from moldau.sim.workloads.groups.model import GroupModel
from moldau.sim.workloads.log.producers import IdempotentProducer, PlainProducer
from moldau.sim.workloads.log.readers import Reader
from moldau.sim.workloads.transactions.copier import Copier, GroupCopier
from moldau.sim.workloads.transactions.model import TransactionModel
from moldau.sim.workloads.transactions.producers import TransactionalProducer
from moldau.sim.workloads.transactions.protocol import SOURCE
from moldau.sim.workloads.transactions.readers import AnyReader, CommittedReader

THINK_S = (0.05, 0.4)
WORK_PARTITIONS = 3


class Cast:
    def __init__(self, stage: Stage, plan: ClusterPlan, oracle: Oracle) -> None:
        model, clock = stage.model, stage.world.loop.time
        self.transactions = TransactionModel(model)
        self.classic = GroupModel(model)
        self.consumers = ConsumerGroupModel(model, clock, SESSION_MS / 1000)
        self.copiers = ConsumerGroupModel(model, clock, SESSION_MS / 1000)
        self.transactional_ids: list[str] = []
        self.admin: Admin | None = None
        self._stage = stage
        self._plan = plan
        self._oracle = oracle

    def add_ledgers(self) -> None:
        model = self._stage.model
        for topic in self._plan.data_topics:
            kind = self._ledger_of(topic)
            for place in topic.places:
                model.add(place, is_flushed=kind is not WeakLedger, keeps_timestamps=True, kind=kind)
                model[place].has_gaps = kind is CompactedLedger

    def _ledger_of(self, topic: TopicPlan) -> type[Ledger]:
        plan = self._plan
        if not plan.is_promised(topic.name):
            return WeakLedger
        kinds: list[tuple[list[TopicPlan], type[Ledger]]] = [
            (plan.unclean, UncleanLedger),
            (plan.trimmed, TrimmedLedger),
            (plan.compacted, CompactedLedger),
        ]
        return next((kind for topics, kind in kinds if topic in topics), Ledger)

    def start(self) -> None:
        plan, stage, places = self._plan, self._stage, places_of(self._plan.plain)
        written = places + places_of([topic for topic in plan.transactional if topic.name == SOURCE])
        for number in range(plan.idempotent_producers):
            client = stage.client(f"idempotent-{number}")
            some = self._some(client, written)
            stage.start(client, IdempotentProducer(client, some, client.random, THINK_S))
        for number in range(plan.plain_producers):
            client = stage.client(f"plain-{number}")
            some = self._some(client, written)
            stage.start(client, PlainProducer(client, some, client.random, THINK_S))
        for number in range(plan.readers):
            client = stage.client(f"reader-{number}")
            stage.start(client, Reader(client, places, client.random))
        for number in range(plan.near_readers):
            client = stage.client(f"near-{number}")
            rack = rack_of(1 + client.random.randrange(plan.brokers))
            stage.start(client, NearReader(client, places, rack, self._oracle.committed))
        if plan.transactional:
            self._start_transactions(places_of(plan.transactional))
        if plan.has_copiers:
            self._start_copiers()
        self._start_groups()
        self._start_operators()

    def _some(self, client: Client, places: list[TopicPartition]) -> list[TopicPartition]:
        first = places[client.random.randrange(len(places))]
        return [place for place in places if place == first or client.random.chance(0.5)]

    # Transactions

    def _start_transactions(self, places: list[TopicPartition]) -> None:
        stage, plan = self._stage, self._plan
        random = stage.world.random.fork("versions")
        for number in range(plan.transactional_ids):
            for name in self._instances(f"transactional-{number}"):
                owner = self.transactional_ids[-1]
                stage.play(name, partial(self._producer, owner, places, random.chance(0.5)))
        client = stage.client("committed")
        stage.start(client, CommittedReader(client, self.transactions, places, client.random))
        client = stage.client("everything")
        stage.start(client, AnyReader(client, self.transactions, places, client.random))

    def _start_copiers(self) -> None:
        stage, plan = self._stage, self._plan
        random = stage.world.random.fork("versions of copiers")
        if plan.copiers_form_a_group:
            for number in range(plan.sources + 1):
                self.transactional_ids.append(f"copier-{number}")
                stage.play(f"copier-{number}", partial(self._group_copier, random.chance(0.5)))
        else:
            for number in range(plan.sources):
                for name in self._instances(f"copier-{number}"):
                    owner = self.transactional_ids[-1]
                    stage.play(name, partial(self._copier, owner, number, random.chance(0.5)))

    def _instances(self, transactional_id: str) -> list[str]:
        """The names of those who share a new transactional id."""
        self.transactional_ids.append(transactional_id)
        return [f"{transactional_id}-{instance}" for instance in "ab"[: self._plan.instances]]

    def _producer(
        self, transactional_id: str, places: list[TopicPartition], owns_epochs: bool, client: Client
    ) -> Actor:
        return TransactionalProducer(
            client, self.transactions, transactional_id, places, owns_epochs=owns_epochs
        )

    @property
    def _sinks(self) -> list[TopicPartition]:
        return places_of([topic for topic in self._plan.transactional if topic.name != SOURCE])

    def _copier(self, transactional_id: str, partition: int, owns_epochs: bool, client: Client) -> Actor:
        return Copier(
            client, self.transactions, transactional_id, partition, self._sinks, owns_epochs=owns_epochs
        )

    def _group_copier(self, owns_epochs: bool, client: Client) -> Actor:
        return GroupCopier(
            client, self.transactions, self.copiers, self._plan.sources, self._sinks, owns_epochs=owns_epochs
        )

    # Groups and operators

    def _start_groups(self) -> None:
        for number in range(self._plan.classic_members):
            client = self._stage.client(f"classic-{number}")
            self._stage.start(client, GroupMember(client, self.classic, WORK_PARTITIONS))
        for number in range(self._plan.consumer_members):
            self._stage.play(f"consumer-{number}", self._consumer)

    def _consumer(self, client: Client) -> Actor:
        return ConsumerMember(client, self.consumers, Interest({WORK: WORK_PARTITIONS}, client.random))

    def _start_operators(self) -> None:
        stage, plan = self._stage, self._plan
        assert stage.store is not None
        if plan.trimmed:
            client = stage.client("trimmer")
            places = places_of(plan.trimmed)
            stage.start(client, Trimmer(client, places, stage.nodes, StoreView(stage.store)))
        if plan.has_admin:
            client = stage.client("operator")
            self.admin = Admin(
                client,
                places_of(plan.topics),
                strict=[topic.name for topic in plan.safe],
                lossy=places_of([*plan.weak, *plan.unclean]),
                brokers=plan.brokers,
                replicas=plan.replicas,
                min_insync=plan.min_insync,
                folders=plan.log_dirs.split(","),
            )
            stage.start(client, self.admin)
