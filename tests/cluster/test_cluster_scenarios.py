"""What Kafka's own system tests put a cluster through, on one cluster with every kind of client at work.

Leader and controller, stopped and killed, for good or in bounces; all brokers one after the other and at once; members
of groups and transactional workers that end and come back; replicas that move, with records deleted below them and
brokers that bounce meanwhile. A run has a seeded choice of these, in a seeded order; `make scenarios` has all of them,
over both engines. (replication_test, transactions_test, consumer_test, reassign_partitions_test, compaction_test.)
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from bench.raw import RawConnection
from cluster.scenario_load import SOURCE, TOPIC, Load
from cluster.several import ENGINES, PATIENCE_S, Cluster, clusters, store_of
from cluster.several_clients import LeaderWriter
from cluster.support import wait_until
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import ClusterClient
from moldau.cli.options import Target
from stored import read_partition

pytestmark = [pytest.mark.slow, pytest.mark.interop]

IS_WHOLE = os.environ.get("SCENARIOS") == "all"
CHOSEN = 3
"""Of each part, in a usual run."""
BOUNCES = 3
MOVED = "moved"
USUAL_SEED = 20_261_118
SETTINGS = {"log_cleaner_backoff_ms": 500, "transaction_state_log_min_isr": 2}

Step = Callable[[Load, random.Random], None]


# Who fails, and how


def leader(cluster: Cluster) -> int:
    """One that is not the controller, where there is one."""
    controller = cluster.controller()
    leaders = [cluster.leader(topic, index) for topic in (TOPIC, SOURCE) for index in range(3)]
    return next((found for found in leaders if found != controller), leaders[0])


def controller(cluster: Cluster) -> int:
    return cluster.controller()


def clean_stop(load: Load, victim: int) -> None:
    load.cluster.stop(victim)
    load.wait_for_more()
    load.cluster.start(victim)


def hard_kill(load: Load, victim: int) -> None:
    load.cluster.kill(victim)
    load.wait_for_more()
    load.cluster.start(victim)


def clean_bounce(load: Load, victim: int) -> None:
    for _ in range(BOUNCES):
        load.cluster.stop(victim)
        load.cluster.start(victim)


def hard_bounce(load: Load, victim: int) -> None:
    for _ in range(BOUNCES):
        load.cluster.kill(victim)
        load.cluster.start(victim)


def failing(who: Callable[[Cluster], int], how: Callable[[Load, int], None]) -> Step:
    return lambda load, _chance: how(load, who(load.cluster))


FAILURES: dict[str, Step] = {
    f"{how.__name__} of the {who.__name__}": failing(who, how)
    for who in (leader, controller)
    for how in (clean_stop, hard_kill, clean_bounce, hard_bounce)
}


# All brokers


def rolling_clean_bounce(load: Load, _chance: random.Random) -> None:
    for broker_id in load.cluster.ids:
        clean_stop(load, broker_id)
        load.cluster.wait_in_sync()


def rolling_hard_bounce(load: Load, _chance: random.Random) -> None:
    for broker_id in load.cluster.ids:
        hard_kill(load, broker_id)
        load.cluster.wait_in_sync()


def simultaneous_clean_bounce(load: Load, _chance: random.Random) -> None:
    load.cluster.stop()
    load.cluster.start()


def simultaneous_hard_bounce(load: Load, _chance: random.Random) -> None:
    load.cluster.kill(*load.cluster.ids)
    load.cluster.start()


# Clients


def bounce_of_members(load: Load, chance: random.Random) -> None:
    """Leaving and coming back, one of each group or all at once."""
    members = chance.choice([load.readers, [chance.choice(group) for group in load.groups.values()]])
    for member in members:
        member.end(PATIENCE_S)
    for member in members:
        member.start()


def bounces_of_copiers(load: Load, chance: random.Random) -> None:
    for name in ("copier-a", "copier-b"):
        chance.choice([load.copiers.stop, load.copiers.kill])(name)
        load.copiers.ensure()
        time.sleep(chance.uniform(0.2, 1.0))


def copier_and_broker_killed(load: Load, chance: random.Random) -> None:
    load.copiers.kill("copier-a")
    hard_kill(load, chance.choice(load.cluster.ids))


# Replicas that move


class Moved:
    """A topic with two replicas, made when it is first used: who writes to it, and where it is."""

    def __init__(self, load: Load, chance: random.Random) -> None:
        self._load = load
        load.cluster.create(MOVED, 1, 2, min_insync_replicas=1)
        self.writer = LeaderWriter("moved", load.cluster, MOVED, 0, chance.getrandbits(32))
        self.writer.start()
        self.wait_for_more()

    def wait_for_more(self) -> None:
        before = len(self.writer.acknowledged())
        wait_until(lambda: len(self.writer.acknowledged()) > before + 20, PATIENCE_S, "writes to what moves")

    def delete_some(self) -> int:
        """The first offset that is left."""
        end = len(self.writer.acknowledged()) // 2
        admin = AdminClient({"bootstrap.servers": self._load.cluster.bootstrap, "log_level": 0})
        place = ClientPartition(MOVED, 0, end)
        return int(admin.delete_records([place])[place].result(PATIENCE_S).low_watermark)

    def move(self, meanwhile: Callable[[], None]) -> None:
        """To the brokers that do not hold it; one of the old ones stays."""
        cluster = self._load.cluster
        (view,) = cluster.views(MOVED)
        new = next(broker_id for broker_id in cluster.ids if broker_id not in view.replicas)
        wanted = (new, view.replicas[0])
        with ClusterClient(Target(cluster.bootstrap)) as client:
            assert client.reassign({TopicPartition(MOVED, 0): wanted}) == {}
        meanwhile()
        wait_until(lambda: self._is_at(wanted), PATIENCE_S, f"{MOVED} to be on {wanted}")

    def _is_at(self, wanted: tuple[int, ...]) -> bool:
        views = self._load.cluster.views(MOVED)
        return [(view.replicas, set(view.isr)) for view in views] == [(wanted, set(wanted))]

    def end_and_check(self, first: int) -> None:
        self.writer.end(PATIENCE_S)
        cluster = self._load.cluster
        cluster.wait_in_sync([MOVED])
        with RawConnection(cluster.brokers[cluster.leader(MOVED)].bootstrap_servers) as connection:
            stored = {record.offset: record.value for record in read_partition(connection, MOVED, 0, first)}
        for ack in self.writer.acknowledged():
            if ack.offset >= first:
                assert stored.get(ack.offset) == ack.value, f"{MOVED} has lost what was at {ack.offset}"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.delete_topics([MOVED])[MOVED].result(PATIENCE_S)
        wait_until(lambda: not any(cluster.views(MOVED, i) for i in cluster.ids), PATIENCE_S, "its end")


def reassignment(*, deletes: bool, bounces: bool) -> Step:
    def play(load: Load, chance: random.Random) -> None:
        moved = Moved(load, chance)
        first = moved.delete_some() if deletes else 0

        def bounce() -> None:
            if bounces:
                chance.choice([clean_bounce, hard_bounce])(load, chance.choice(load.cluster.ids))

        for _ in range(2):
            moved.move(bounce)
            moved.wait_for_more()
        moved.end_and_check(first)

    return play


OTHERS: dict[str, Step] = {
    "rolling clean bounce": rolling_clean_bounce,
    "rolling hard bounce": rolling_hard_bounce,
    "simultaneous clean bounce": simultaneous_clean_bounce,
    "simultaneous hard bounce": simultaneous_hard_bounce,
    "bounce of members": bounce_of_members,
    "bounces of copiers": bounces_of_copiers,
    "a copier and a broker killed": copier_and_broker_killed,
    "reassignment": reassignment(deletes=False, bounces=False),
    "reassignment with deletes": reassignment(deletes=True, bounces=False),
    "reassignment with bounces": reassignment(deletes=False, bounces=True),
    "reassignment with deletes and bounces": reassignment(deletes=True, bounces=True),
}


def chosen(chance: random.Random) -> list[str]:
    """In a usual run some of each part; the whole one has all, in any order."""
    names = []
    for part in (FAILURES, OTHERS):
        names += chance.sample(sorted(part), len(part) if IS_WHOLE else CHOSEN)
    chance.shuffle(names)
    return names


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ENGINES if IS_WHOLE else ENGINES[:1])
def test_every_client_keeps_its_promises_through_what_kafkas_system_tests_do(
    engine: str, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    with store_of(engine, tmp_path) as store, clusters(tmp_path) as new_cluster:
        cluster = new_cluster(3, store, **SETTINGS)
        load = Load(cluster, chance)
        try:
            load.start()
            load.wait_for_more()
            for name in chosen(chance):
                begun_s = time.monotonic()
                (FAILURES | OTHERS)[name](load, chance)
                cluster.wait_in_sync()
                load.wait_for_more()
                load.check()
                print(f"{name}: {time.monotonic() - begun_s:.1f} s")
            print(f"{engine}: {load.end_and_check()}")
        finally:
            load.copiers.end()
