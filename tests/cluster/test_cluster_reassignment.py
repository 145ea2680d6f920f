"""Partitions move from broker to broker, throttled, under load, while kill -9 ends a broker that takes part: who comes,
who leads, the controller. Nothing that was acknowledged is lost or stored twice, and each move comes to an end (R6)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cluster.several import PATIENCE_S, Cluster, NewCluster, clusters
from cluster.several_work import Writers
from cluster.support import wait_until
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import ClusterClient
from moldau.cli.cluster_throttle import put_on, standing, take_all_away
from moldau.cli.errors import CliError
from moldau.cli.options import Target
from moldau.cli.throttles import planned_copies

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "moving"
PARTITIONS = 3
BROKERS = 4
COPIES = 3
RATE = 200_000
USUAL_SEED = 29
Placement = dict[TopicPartition, tuple[int, ...]]


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield make


def fill(cluster: Cluster) -> None:
    """So that a move takes seconds: 2 MB in each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(20 * PARTITIONS):
        producer.produce(TOPIC, b"filler" + bytes(100_000), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def placement(cluster: Cluster) -> Placement:
    views = cluster.views(TOPIC)
    return {TopicPartition(TOPIC, index): view.replicas for index, view in enumerate(views)}


def begin_move(cluster: Cluster, chance: random.Random) -> Placement:
    """Each partition to the broker that has no replica of it, in place of another."""
    before = placement(cluster)
    wanted: Placement = {}
    for place, replicas in before.items():
        (newcomer,) = set(cluster.ids) - set(replicas)
        kept = chance.sample(replicas, COPIES - 1)
        wanted[place] = (newcomer, *kept)
    with ClusterClient(Target(cluster.bootstrap)) as client:
        put_on(client, planned_copies(before, wanted), RATE)
        assert client.reassign(wanted) == {}
    return wanted


def moving(cluster: Cluster) -> bool:
    with ClusterClient(Target(cluster.bootstrap)) as client:
        return bool(client.moving())


def end_move(cluster: Cluster, wanted: Placement) -> None:
    with ClusterClient(Target(cluster.bootstrap)) as client:
        assert standing(client), "the throttle has outlived the kill"
        take_all_away(client)

    def is_over() -> bool:
        try:
            return not moving(cluster) and placement(cluster) == wanted
        except (CliError, OSError):
            return False

    try:
        wait_until(is_over, PATIENCE_S, f"replicas at {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they are at {placement(cluster)}\n{cluster.words()}") from None


def test_moves_under_load_outlive_the_death_of_any_broker_that_takes_part(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    cluster = new_cluster(BROKERS)
    cluster.create(TOPIC, PARTITIONS, COPIES, min_insync_replicas=2)
    fill(cluster)
    writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
    writers.wait_for_more()
    for role in ("who comes", "who leads", "the controller"):
        promised = writers.acknowledged()
        wanted = begin_move(cluster, chance)
        if role == "who comes":
            victim = wanted[TopicPartition(TOPIC, 0)][0]
        else:
            victim = cluster.leader(TOPIC, 0) if role == "who leads" else cluster.controller()
        writers.wait_for_more()
        assert moving(cluster), "broker is killed in the middle of a move"
        cluster.kill(victim)
        writers.wait_for_more()
        cluster.start(victim)
        end_move(cluster, wanted)
        cluster.wait_in_sync([TOPIC])
        writers.wait_for_more()
        writers.stored.read(promised)
    writers.end_and_check()
    for place, replicas in wanted.items():
        held = [i for i, broker in cluster.brokers.items() if (broker.data / str(place)).is_dir()]
        assert sorted(held) == sorted(replicas), f"{place} is nowhere else"
