"""What replication factor, min.insync.replicas and acks buy when brokers are lost (R5).

A test for each row of the table in docs/cluster.md, on three brokers that they share; five brokers are in
`test_cluster_rounds`. Each begins and ends with a cluster that is well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.raw import RawConnection
from cluster.several import PATIENCE_S, Cluster, clusters
from cluster.several_checks import Stored
from cluster.several_clients import QUICK, LeaderWriter
from cluster.support import error_of_fetch, wait_until
from moldau.base.errors import ErrorCode

pytestmark = pytest.mark.slow

USUAL_SEED = 12
NOT_ENOUGH = {ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append}
A_FEW = 20
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clusters(tmp_path_factory.mktemp("settings")) as make:
        yield make(3)


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    for broker_id in list(shared.paused):
        shared.resume(broker_id)
    for broker_id in shared.ids:
        if shared.brokers[broker_id].ended():
            shared.start(broker_id)
    shared.wait_in_sync()


class Row:
    """A topic with the row's settings, one who writes to it, and all that it was promised."""

    def __init__(
        self, cluster: Cluster, seed: int, copies: int, min_insync_replicas: int, acks: int = -1
    ) -> None:
        self.cluster = cluster
        self.topic = f"row-{next(_numbers)}"
        cluster.create(self.topic, 1, copies, min_insync_replicas=min_insync_replicas)
        self.writer = LeaderWriter(self.topic, cluster, self.topic, 0, seed, acks)
        self.stored = Stored(cluster, self.topic, 1)
        self.writer.start()
        self.wait_for_more()

    @property
    def leader(self) -> int:
        return self.cluster.leader(self.topic)

    @property
    def followers(self) -> list[int]:
        (view,) = self.cluster.views(self.topic)
        return [replica for replica in view.replicas if replica != view.leader]

    def wait_for_more(self) -> None:
        before = len(self.writer.acknowledged())
        wait_until(
            lambda: len(self.writer.acknowledged()) > before + A_FEW, PATIENCE_S, "acknowledged writes"
        )

    @contextmanager
    def refused(self) -> Iterator[None]:
        """From now to the end of the block, writes are refused by their error, and none is acknowledged."""
        before = self._refusals()
        wait_until(lambda: self._refusals() > before, PATIENCE_S, "a refusal")
        count, before = len(self.writer.acknowledged()), self._refusals()
        wait_until(lambda: self._refusals() > before + A_FEW, PATIENCE_S, "more refusals")
        yield
        assert len(self.writer.acknowledged()) == count, "nothing is acknowledged meanwhile"

    def _refusals(self) -> int:
        return sum(self.writer.errors.get(code, 0) for code in NOT_ENOUGH)

    def check_all_is_there(self) -> None:
        self.stored.read(self.writer.acknowledged())

    def end(self) -> None:
        """With all brokers back: nothing that was acknowledged is lost or changed."""
        self.cluster.wait_in_sync()
        self.writer.end(PATIENCE_S)
        self.check_all_is_there()
        self.stored.read_all_again()


NewRow = Callable[..., Row]


@pytest.fixture
def new_row(cluster: Cluster, seed: Callable[[int], int]) -> Iterator[NewRow]:
    made: list[Row] = []

    def make(copies: int, min_insync_replicas: int, acks: int = -1) -> Row:
        made.append(Row(cluster, seed(USUAL_SEED), copies, min_insync_replicas, acks))
        return made[-1]

    yield make
    for row in made:
        row.writer.end(PATIENCE_S)


def test_three_copies_of_which_two_are_in_sync_outlive_one_broker_and_with_two_lost_only_reads_go_on(
    cluster: Cluster, new_row: NewRow
) -> None:
    row = new_row(3, min_insync_replicas=2)
    first = row.leader
    cluster.kill(first)
    row.wait_for_more()
    row.check_all_is_there()
    second, promised = row.leader, row.writer.acknowledged()
    row.wait_for_more()  # by which the last one hears that the ones before are committed
    cluster.kill(second)
    with row.refused():
        row.stored.read(promised)
    cluster.start(second)
    row.wait_for_more()
    cluster.start(first)
    row.end()


def test_with_min_insync_replicas_as_high_as_the_copies_a_lost_broker_stops_writes_and_loses_nothing(
    cluster: Cluster, new_row: NewRow
) -> None:
    row = new_row(3, min_insync_replicas=3)
    lost = row.followers[0]
    cluster.kill(lost)
    with row.refused():
        row.check_all_is_there()
    cluster.start(lost)
    row.wait_for_more()
    assert set(row.writer.errors) <= NOT_ENOUGH | {ErrorCode.not_leader_or_follower}
    row.end()


def test_two_copies_of_which_one_is_in_sync_outlive_one_broker_and_wait_for_the_one_that_was_last(
    cluster: Cluster, new_row: NewRow
) -> None:
    """What was written while one was away is on the other alone: without it nothing is read or written, and nothing is
    lost, until it is back."""
    row = new_row(2, min_insync_replicas=1)
    first, last = row.leader, row.followers[0]
    cluster.kill(first)
    row.wait_for_more()
    cluster.kill(last)
    cluster.start(first)
    wait_until(lambda: cluster.views(row.topic, first)[0].leader == -1, PATIENCE_S, "no leader")
    count = len(row.writer.acknowledged())
    cluster.start(last)
    row.wait_for_more()
    assert row.writer.acknowledged()[:count], "what was acknowledged before is looked for below"
    row.end()


def test_one_copy_is_away_with_its_broker_and_back_with_it(cluster: Cluster, new_row: NewRow) -> None:
    row = new_row(1, min_insync_replicas=1)
    only = row.leader
    other = next(broker_id for broker_id in cluster.ids if broker_id != only)
    cluster.kill(only)
    wait_until(lambda: cluster.views(row.topic, other)[0].leader == -1, PATIENCE_S, "no leader")
    count = len(row.writer.acknowledged())
    with RawConnection(cluster.brokers[other].bootstrap_servers) as connection:
        assert error_of_fetch(connection, row.topic, 0) == ErrorCode.not_leader_or_follower
    cluster.start(only)
    row.wait_for_more()
    assert len(row.writer.acknowledged()) > count
    row.end()


def test_acks_1_loses_what_only_the_lost_leader_had_and_acks_all_had_not_acknowledged_it(
    cluster: Cluster, new_row: NewRow
) -> None:
    """The followers are stopped for a moment, as they may lag behind at any time. With acks=1 the last one of three
    takes writes, too."""
    careless = new_row(3, min_insync_replicas=2, acks=1)
    careful = LeaderWriter("acks-all", cluster, careless.topic, 0, USUAL_SEED)
    careful.start()
    wait_until(lambda: len(careful.acknowledged()) > A_FEW, PATIENCE_S, "acknowledged writes")
    leader, followers = careless.leader, careless.followers
    for follower in followers:
        cluster.pause(follower)
    careless.wait_for_more()
    cluster.kill(leader)
    promised = careless.writer.acknowledged()
    for follower in followers:
        cluster.resume(follower)
    careless.wait_for_more()
    cluster.start(leader)
    cluster.wait_in_sync()
    careful.end(PATIENCE_S)
    followers = careless.followers
    cluster.kill(*followers)
    careless.wait_for_more()
    cluster.start(*followers)
    cluster.wait_in_sync()
    careless.writer.end(PATIENCE_S)
    careless.stored.read(careful.acknowledged())
    values = set(careless.stored.values(0))
    lost = [ack for ack in promised if ack.value not in values]
    print(f"acks=1 lost {len(lost)} of {len(promised)} acknowledged records")
    assert lost


def readable_end(cluster: Cluster, topic: str) -> int:
    """Up to where all in-sync replicas have the partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "end", **QUICK})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1]
    finally:
        consumer.close()
    return end


def test_acks_0_loses_what_never_arrived_and_nobody_is_told(cluster: Cluster, new_row: NewRow) -> None:
    row = new_row(3, min_insync_replicas=2)
    row.writer.end(PATIENCE_S)
    outcomes: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        outcomes.append(error)

    before = readable_end(cluster, row.topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": 0, **QUICK})
    producer.produce(row.topic, b"arrived", partition=0, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0  # which says that it was sent, not that it is there
    wait_until(lambda: readable_end(cluster, row.topic) > before, PATIENCE_S, "the first message")
    leader = row.leader
    cluster.pause(leader)
    producer.produce(row.topic, b"never arrived", partition=0, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    cluster.kill(leader)
    assert outcomes == [None, None], "both are taken for delivered"
    cluster.start(leader)
    cluster.wait_in_sync()
    row.stored.read(row.writer.acknowledged())
    assert b"arrived" in row.stored.values(0)
    assert b"never arrived" not in row.stored.values(0)
