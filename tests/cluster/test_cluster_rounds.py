"""Five brokers, any two of which are killed with -9 again and again, while all kinds of clients work (R5, R9).

RF=5, min.insync.replicas=3: the three that are left take writes with acks=all. Every fourth round kills again before
the first two are back in the in-sync sets, so that for a while nothing can be written. The usual run has a few rounds;
`make rounds ROUNDS=20` has as many as it is told, with another seed each time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from cluster.several import ENGINES, PATIENCE_S, Cluster, clusters, store_of
from cluster.several_checks import (
    Stored,
    check_order,
    check_replicas,
    check_transactions,
    read_committed,
)
from cluster.several_clients import GroupReader, LeaderWriter, TransactionalWriter
from cluster.support import wait_until
from cluster.writers import Acknowledged, IdempotentWriter, Writer

pytestmark = [pytest.mark.slow, pytest.mark.interop]

ROUNDS = int(os.environ.get("ROUNDS", "4"))
USUAL_SEED = 20_261_117
TOPIC, GROUP = "survivors", "readers"
PARTITIONS = 3
BROKERS = 5
SETTINGS = {
    "offsets_topic_replication_factor": BROKERS,
    "transaction_state_log_replication_factor": BROKERS,
    "transaction_state_log_min_isr": 3,
    "min_insync_replicas": 3,
}


class Load:
    """All clients, and what they were promised."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        everywhere, bootstrap = list(range(PARTITIONS)), cluster.bootstrap
        self._cluster = cluster
        self.plain: list[Writer] = [
            IdempotentWriter("idempotent-a", bootstrap, TOPIC, everywhere, chance.getrandbits(32)),
            IdempotentWriter("idempotent-b", bootstrap, TOPIC, [0], chance.getrandbits(32)),
            *(
                LeaderWriter(f"raw-{index}", cluster, TOPIC, index, chance.getrandbits(32))
                for index in everywhere
            ),
        ]
        self.transactional = [
            TransactionalWriter(f"transactions-{name}", bootstrap, TOPIC, everywhere, chance.getrandbits(32))
            for name in "ab"
        ]
        self.readers = [
            GroupReader(f"reader-{name}", bootstrap, GROUP, [TOPIC], chance.getrandbits(32)) for name in "ab"
        ]
        self.stored = Stored(cluster, TOPIC, PARTITIONS)

    @property
    def all(self) -> list[Writer | GroupReader]:
        return [*self.plain, *self.transactional, *self.readers]

    def acknowledged(self) -> list[Acknowledged]:
        return [ack for writer in self.plain for ack in writer.acknowledged()]

    def wait_for_more(self) -> None:
        """Until each writer has had something acknowledged that it had not before."""
        before = {writer.name: len(writer.acknowledged()) for writer in self.plain}
        before_ends = {writer.name: len(writer.outcomes) for writer in self.transactional}

        def goes_on() -> bool:
            for client in self.all:
                if client.problem is not None:
                    raise client.problem
            return all(len(writer.acknowledged()) > before[writer.name] for writer in self.plain) and all(
                len(writer.outcomes) > before_ends[writer.name] for writer in self.transactional
            )

        try:
            wait_until(goes_on, PATIENCE_S, "all writers to go on")
        except AssertionError as error:
            stuck = [w.name for w in self.plain if len(w.acknowledged()) <= before[w.name]]
            stuck += [w.name for w in self.transactional if len(w.outcomes) <= before_ends[w.name]]
            raise AssertionError(f"{error}: {stuck}\n{self._cluster.words()}") from None

    def check(self, promised: list[Acknowledged]) -> None:
        self.stored.read(promised)
        for writer in self.plain:
            check_order(writer, self.stored)

    def end(self) -> None:
        for writer in (*self.plain, *self.transactional):
            writer.end(timeout_s=PATIENCE_S)
        self._wait_for_readers()
        for reader in self.readers:
            reader.end(timeout_s=PATIENCE_S)

    def _wait_for_readers(self) -> None:
        promised = {ack.value for ack in self.acknowledged()}
        wait_until(
            lambda: promised <= self.readers[0].values | self.readers[1].values,
            PATIENCE_S,
            "the group to have read all that was acknowledged",
        )

    def check_at_the_end(self) -> None:
        self.check(self.acknowledged())
        self.stored.read_all_again()
        committed = [read_committed(self._cluster.bootstrap, TOPIC, index) for index in range(PARTITIONS)]
        for writer in self.transactional:
            check_transactions(writer, committed)
        self._check_commits()

    def _check_commits(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": GROUP, "log_level": 0})
        try:
            places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            offsets = {place.partition: place.offset for place in consumer.committed(places, 30)}
        finally:
            consumer.close()
        for reader in self.readers:
            for (_, partition), offset in reader.committed.items():
                assert offsets[partition] >= offset, f"{reader.name}: its commit of {offset} is lost"

    def figures(self) -> str:
        outcomes = [outcome.value for writer in self.transactional for outcome, _ in writer.outcomes.values()]
        ends = {name: outcomes.count(name) for name in sorted(set(outcomes))}
        longest_s = max(writer.longest_s for writer in self.plain if isinstance(writer, LeaderWriter))
        return (
            f"{len(self.acknowledged())} acknowledged, transactions {ends}, "
            f"{sum(len(reader.values) for reader in self.readers)} read by the group, "
            f"longest pause of a raw writer {longest_s:.1f} s"
        )


@pytest.mark.timeout(300 + 60 * ROUNDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_acknowledged_is_lost_whichever_two_of_five_are_killed(
    engine: str, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    with store_of(engine, tmp_path) as store, clusters(tmp_path) as new_cluster:
        cluster = new_cluster(BROKERS, store, **SETTINGS)
        cluster.create(TOPIC, PARTITIONS, BROKERS, min_insync_replicas=3)
        load = Load(cluster, chance)
        for client in load.all:
            client.start()
        load.wait_for_more()
        begun_s = time.monotonic()
        for number in range(ROUNDS):
            play_round(cluster, load, chance, is_hard=number % 4 == 3)
        cluster.wait_in_sync()
        lasted_s = time.monotonic() - begun_s
        load.end()
        load.check_at_the_end()
        cluster.wait_in_sync()
        cluster.stop()
        compared = check_replicas(cluster)
        print(
            f"{engine}: {ROUNDS} rounds in {lasted_s:.0f} s; {load.figures()}; "
            f"replicas equal in {compared} bytes"
        )


def play_round(cluster: Cluster, load: Load, chance: random.Random, *, is_hard: bool) -> None:
    time.sleep(chance.uniform(0.2, 1.0))
    promised = load.acknowledged()
    victims = chance.sample(cluster.ids, 2)
    if chance.random() < 0.5:
        cluster.kill(*victims)
    else:
        cluster.kill(victims[0])
        time.sleep(chance.uniform(0.0, 1.0))
        cluster.kill(victims[1])
    load.wait_for_more()
    load.check(promised)
    if is_hard:
        cluster.launch(*victims)
        others = chance.sample([i for i in cluster.ids if i not in victims], 2)
        time.sleep(chance.uniform(0.0, 1.0))
        cluster.kill(*others)
        cluster.launch(*others)
        victims += others
        for victim in victims:
            cluster.brokers[victim].wait_ready(PATIENCE_S)
    else:
        cluster.start(*victims)
    cluster.wait_in_sync()
    load.wait_for_more()
