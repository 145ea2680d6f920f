"""Network cuts between named brokers, in network namespaces: packets are dropped without a word (R7, promises 1, 2, 6).

A leader without its followers commits nothing; what clients were promised is there when the cut is healed, whoever has
led meanwhile. The cluster comes together again by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.networks import STORE, Network, networks
from cluster.several import PATIENCE_S, SESSION_MS, Cluster, NewCluster, clusters
from cluster.several_work import Writers
from cluster.support import wait_until
from contract.ensembles import running_ensemble

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
CUT_S = 3 * SESSION_MS / 1000
USUAL_SEED = 15


@pytest.fixture
def network() -> Iterator[Network]:
    with networks(3) as made:
        yield made


@pytest.fixture
def new_cluster(tmp_path: Path, network: Network) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield lambda store="": make(3, store, network)


@pytest.fixture
def store(tmp_path: Path, network: Network) -> Iterator[str]:
    """An ensemble that brokers reach under an address of its own."""
    with running_ensemble(tmp_path / "zookeeper", settings={"clientPortAddress": "0.0.0.0"}) as ensemble:
        addresses = ",".join(f"{network.store_address}:{node.port}" for node in ensemble.nodes)
        yield f"zookeeper:{addresses}/cuts"


def with_writers(cluster: Cluster, seed: int) -> Writers:
    cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
    writers = Writers(cluster, TOPIC, PARTITIONS, seed)
    writers.wait_for_more()
    return writers


def others(cluster: Cluster, broker_id: int) -> list[int]:
    return [other for other in cluster.ids if other != broker_id]


def a_leader(cluster: Cluster, *, is_controller: bool) -> tuple[int, int]:
    """A partition and who leads it: the controller, or another."""
    controller = cluster.controller()
    found = [(i, view.leader) for i, view in enumerate(cluster.views(TOPIC))]
    return next((i, leader) for i, leader in found if (leader == controller) == is_controller)


@pytest.mark.parametrize("both_ways", [True, False], ids=["both ways", "one way"])
@pytest.mark.parametrize("is_controller", [False, True], ids=["a leader", "the controller"])
def test_a_leader_cut_off_from_its_followers_loses_nothing_and_goes_on_when_they_are_back(
    new_cluster: NewCluster,
    network: Network,
    seed: Callable[[int], int],
    is_controller: bool,
    both_ways: bool,
) -> None:
    cluster = new_cluster()
    writers = with_writers(cluster, seed(USUAL_SEED))
    _, leader = a_leader(cluster, is_controller=is_controller)
    network.cut(leader, *others(cluster, leader), both_ways=both_ways)
    time.sleep(CUT_S)
    promised = writers.acknowledged()
    network.heal()
    cluster.wait_in_sync()
    writers.wait_for_more()
    writers.stored.read(promised)
    writers.end_and_check()


@pytest.mark.parametrize("is_controller", [False, True], ids=["a leader", "the controller"])
def test_a_leader_cut_off_from_the_store_only_is_replaced_and_comes_back(
    new_cluster: NewCluster, network: Network, store: str, seed: Callable[[int], int], is_controller: bool
) -> None:
    cluster = new_cluster(store)
    writers = with_writers(cluster, seed(USUAL_SEED))
    index, leader = a_leader(cluster, is_controller=is_controller)
    network.cut(leader, STORE)
    wait_until(
        lambda: cluster.views(TOPIC, others(cluster, leader)[0])[index].leader not in (leader, -1),
        PATIENCE_S,
        "another leader",
    )
    writers.wait_for_more()
    network.heal()
    cluster.wait_in_sync()
    writers.wait_for_more()
    assert "is in the cluster again" in cluster.brokers[leader].said()
    writers.end_and_check()


def test_a_leader_cut_off_from_everyone_is_replaced_and_what_it_had_alone_is_gone(
    new_cluster: NewCluster, network: Network, store: str, seed: Callable[[int], int]
) -> None:
    """Clients still reach it: what they write to it alone is never acknowledged."""
    cluster = new_cluster(store)
    writers = with_writers(cluster, seed(USUAL_SEED))
    index, leader = a_leader(cluster, is_controller=False)
    network.cut(leader, *others(cluster, leader), STORE)
    wait_until(
        lambda: cluster.views(TOPIC, others(cluster, leader)[0])[index].leader not in (leader, -1),
        PATIENCE_S,
        "another leader",
    )
    time.sleep(CUT_S)
    network.heal()
    cluster.wait_in_sync()
    writers.wait_for_more()
    writers.end_and_check()
