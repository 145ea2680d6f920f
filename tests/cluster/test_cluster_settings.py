"""What acks and min.insync.replicas buy when brokers are lost (SPEC R5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.several import PATIENCE_S, Cluster, NewCluster, clusters
from cluster.several_checks import Stored, check_replicas
from cluster.several_clients import LeaderWriter
from cluster.several_work import Writers
from cluster.support import wait_until
from cluster.writers import Writer
from moldau.base.errors import ErrorCode

pytestmark = pytest.mark.slow

TOPIC = "survivors"
USUAL_SEED = 12
NOT_ENOUGH = {ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append}


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield make


def other_than(cluster: Cluster, *ids: int) -> int:
    return next(broker_id for broker_id in cluster.ids if broker_id not in ids)


def test_with_min_insync_replicas_as_high_as_the_copies_a_lost_broker_stops_writes_and_loses_nothing(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    cluster = new_cluster(3)
    cluster.create(TOPIC, 1, 3, min_insync_replicas=3)
    writers = Writers(cluster, TOPIC, 1, seed(USUAL_SEED))
    writers.wait_for_more()
    (raw,) = writers.raw
    lost = other_than(cluster, cluster.leader(TOPIC))
    cluster.kill(lost)
    wait_until(lambda: raw.errors.get(ErrorCode.not_enough_replicas, 0) > 0, PATIENCE_S, "a refusal")
    refused = len(writers.acknowledged())
    time.sleep(1)
    assert len(writers.acknowledged()) == refused, "nothing is acknowledged while one copy is missing"
    cluster.start(lost)
    writers.wait_for_more()
    assert set(raw.errors) <= NOT_ENOUGH | {ErrorCode.not_leader_or_follower}
    writers.end_and_check()


def test_acks_1_may_lose_its_last_records_with_the_leader_and_acks_all_none(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    """One writer of each kind in one partition. The leader is killed again and again."""
    cluster = new_cluster(3)
    cluster.create(TOPIC, 1, 3, min_insync_replicas=2)
    begin = seed(USUAL_SEED)
    careless = LeaderWriter("acks-1", cluster, TOPIC, 0, begin, acks=1)
    careful = LeaderWriter("acks-all", cluster, TOPIC, 0, begin + 1)
    writers: list[Writer] = [careless, careful]
    for writer in writers:
        writer.start()
    stored = Stored(cluster, TOPIC, 1)
    for _ in range(4):
        before = len(careful.acknowledged())
        wait_until(lambda before=before: len(careful.acknowledged()) > before + 50, PATIENCE_S, "writes")  # type: ignore[misc]
        leader = cluster.leader(TOPIC)
        cluster.kill(leader)
        stored.read(careful.acknowledged())
        cluster.start(leader)
        cluster.wait_in_sync([TOPIC])
    for writer in writers:
        writer.end(PATIENCE_S)
    stored.read(careful.acknowledged())
    stored.read_all_again()
    values = set(stored.values(0))
    lost = [ack for ack in careless.acknowledged() if ack.value not in values]
    print(f"acks=1 lost {len(lost)} of {len(careless.acknowledged())} acknowledged records")
    cluster.wait_in_sync()
    cluster.stop()
    assert check_replicas(cluster, [TOPIC]) > 0
