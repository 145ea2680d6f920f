"""What a seed makes of a run of a cluster, before anything has happened."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.ids import TopicPartition
from moldau.sim.fabric import Link
from moldau.sim.nemesis import Mixture
from moldau.sim.random import SimRandom
from moldau.sim.stage import TopicPlan
from moldau.sim.workloads.cluster.nemesis import draw_mixture
from moldau.sim.workloads.transactions.protocol import SOURCE

FLUSHED = {"flush.messages": "1"}
DIRTY = {"min.cleanable.dirty.ratio": "0.01"}


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    brokers: int
    replicas: int
    """Of a safe topic, and of the coordinators' topics."""
    min_insync: int
    safe: list[TopicPlan]
    weak: list[TopicPlan]
    """What is acknowledged may be lost with its leader."""
    unclean: list[TopicPlan]
    """Anybody may lead where nobody else can: what only others have is lost."""
    trimmed: list[TopicPlan]
    """Of which somebody deletes the first records."""
    compacted: list[TopicPlan]
    """Those of the coordinators are compacted in the same runs."""
    transactional: list[TopicPlan]
    idempotent_producers: int
    plain_producers: int
    readers: int
    near_readers: int
    transactional_ids: int
    instances: int
    """Of each transactional id: with more than one they fence each other."""
    has_copiers: bool
    copiers_form_a_group: bool
    """Otherwise each source partition has a transactional id of its own."""
    classic_members: int
    consumer_members: int
    has_admin: bool
    is_flushed: bool
    """Everything is on the disk before it is acknowledged: then the power may go everywhere."""
    ends_twice: bool
    """Everything is read again after all brokers have ended at once."""
    log_dirs: str
    link: Link
    disk_delay_s: tuple[float, float]
    mixture: Mixture

    @classmethod
    def draw(cls, seed: int | str) -> ClusterPlan:
        random = SimRandom(f"{seed}/cluster plan")
        brokers = (3, 3, 3, 4, 5)[random.randrange(5)]
        replicas, min_insync = (5, 3) if brokers == 5 and random.chance(0.4) else (3, 2)
        is_flushed = random.chance(0.15)
        has_groups, has_transactions = random.chance(0.4), random.chance(0.4)
        has_copiers = has_transactions and random.chance(0.5)
        flushed = FLUSHED if is_flushed else {}
        transactional = ["txn", SOURCE] if has_copiers else ["txn"]
        return cls(
            brokers=brokers,
            replicas=replicas,
            min_insync=min_insync,
            safe=[_topic(f"safe-{n}", random, flushed, replicas) for n in range(1 + random.randrange(2))],
            weak=[_weak(random)] if random.chance(0.3) else [],
            unclean=[_unclean(random, flushed, replicas)] if random.chance(0.3) else [],
            trimmed=[_topic("trimmed", random, flushed, replicas)] if random.chance(0.25) else [],
            compacted=[_compacted(flushed, replicas)] if random.chance(0.25) else [],
            transactional=[_topic(name, random, flushed, replicas) for name in transactional]
            if has_transactions
            else [],
            idempotent_producers=1 + random.randrange(2),
            plain_producers=random.randrange(3),
            readers=1 + random.randrange(2),
            near_readers=random.randrange(2),
            transactional_ids=1 + random.randrange(2),
            instances=1 + random.randrange(2),
            has_copiers=has_copiers,
            copiers_form_a_group=random.chance(0.5),
            classic_members=1 + random.randrange(3) if has_groups else 0,
            consumer_members=1 + random.randrange(3) if has_groups else 0,
            has_admin=random.chance(0.5),
            is_flushed=is_flushed,
            ends_twice=random.chance(0.4),
            log_dirs="/data" if random.chance(0.7) else "/data/a,/data/b",
            link=Link(
                delay_s=(0.000_05, (0.001, 0.005, 0.03)[random.randrange(3)]),
                partial_rate=random.between(0.0, 0.1),
                reset_rate=0.0005 if random.chance(0.2) else 0.0,
            ),
            disk_delay_s=(0.000_05, (0.003, 0.02, 0.05)[random.randrange(3)]),
            mixture=draw_mixture(random, spares_power=random.chance(0.3), spares_disks=is_flushed),
        )

    @property
    def has_groups(self) -> bool:
        return bool(self.classic_members or self.consumer_members)

    @property
    def data_topics(self) -> list[TopicPlan]:
        return [*self.plain, *self.transactional]

    @property
    def plain(self) -> list[TopicPlan]:
        """For producers without transactions, and all readers."""
        return [*self.safe, *self.weak, *self.unclean, *self.trimmed, *self.compacted]

    def is_promised(self, topic: str) -> bool:
        """Whether it has as many replicas in sync as it takes to lose nothing."""
        few = [one.name for one in self.data_topics if one.configs.get("min.insync.replicas") == "1"]
        return topic not in few

    @property
    def sources(self) -> int:
        """Partitions that copiers read."""
        return sum(topic.partitions for topic in self.transactional if topic.name == SOURCE)

    @property
    def topics(self) -> list[TopicPlan]:
        flushed = FLUSHED if self.is_flushed else {}
        inner = flushed | {"cleanup.policy": "compact", "internal.segment.bytes": "12000"}
        coordinators = []
        if self.compacted:
            inner |= DIRTY
        if self.has_groups or self.has_copiers:
            coordinators.append(TopicPlan("__consumer_offsets", 2, inner, self.replicas))
        if self.has_groups:
            coordinators.append(TopicPlan("work", 3, {}, self.replicas))
        if self.transactional:
            coordinators.append(TopicPlan("__transaction_state", 2, inner, self.replicas))
        return [*coordinators, *self.data_topics]

    @property
    def settings(self) -> dict[str, str]:
        """The brokers'."""
        return {
            "log.dirs": self.log_dirs,
            "min.insync.replicas": str(self.min_insync),
            "offsets.topic.replication.factor": str(self.replicas),
            "transaction.state.log.replication.factor": str(self.replicas),
            "transaction.state.log.min.isr": str(self.min_insync),
            # Each replica compacts for itself, so that they are not alike byte for byte.
            "log.cleaner.enable": "true" if self.compacted else "false",
        }


def places_of(topics: list[TopicPlan]) -> list[TopicPartition]:
    return [place for topic in topics for place in topic.places]


def _topic(name: str, random: SimRandom, flushed: dict[str, str], replicas: int) -> TopicPlan:
    configs = {
        "internal.segment.bytes": str((6_000, 20_000, 60_000)[random.randrange(3)]),
        "index.interval.bytes": str((0, 500, 4096)[random.randrange(3)]),
    }
    return TopicPlan(name, 1 + random.randrange(2), configs | flushed, replicas)


def _weak(random: SimRandom) -> TopicPlan:
    configs = {"min.insync.replicas": "1", "internal.segment.bytes": "8000"}
    return TopicPlan("weak", 1 + random.randrange(2), configs, 1 + random.randrange(3))


def _unclean(random: SimRandom, flushed: dict[str, str], replicas: int) -> TopicPlan:
    configs = {"unclean.leader.election.enable": "true", "internal.segment.bytes": "8000"}
    if random.chance(0.3):
        configs["min.insync.replicas"] = "1"
    return TopicPlan("unclean", 1 + random.randrange(2), configs | flushed, replicas)


def _compacted(flushed: dict[str, str], replicas: int) -> TopicPlan:
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "6000"}
    return TopicPlan("compacted", 1, configs | DIRTY | flushed, replicas)
