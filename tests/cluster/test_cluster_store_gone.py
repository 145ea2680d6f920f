"""The cluster store gone for a while: all nodes of the ZooKeeper ensemble are stopped for longer than the sessions.

Brokers go on with the leaders that they have: acknowledged writes and reads, no leader changes. When the store is back
everything goes on by itself. (SQLite is a file, and has no such time.)
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.several import PATIENCE_S, SESSION_MS, Cluster, clusters
from cluster.several_clients import GroupReader
from cluster.several_work import Writers
from cluster.support import wait_until
from contract.ensembles import running_ensemble
from moldau.cli.zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
GONE_S = 3 * SESSION_MS / 1000
USUAL_SEED = 14


def signal_all(ensemble: Ensemble, number: signal.Signals) -> None:
    for node in ensemble.nodes:
        node.signal(number)


def leaders(cluster: Cluster) -> list[tuple[int, int]]:
    return [(view.leader, view.epoch) for view in cluster.views(TOPIC)]


def test_without_the_store_leaders_go_on_and_with_it_the_cluster_recovers_by_itself(
    tmp_path: Path, seed: Callable[[int], int]
) -> None:
    with running_ensemble(tmp_path / "zookeeper") as ensemble, clusters(tmp_path) as make:
        cluster = make(3, f"{ensemble.url}/gone")
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
        reader = GroupReader("reader", cluster.bootstrap, "readers", [TOPIC], 1)
        reader.start()
        wait_until(lambda: bool(reader.committed), PATIENCE_S, "the group to work")
        writers.wait_for_more()
        before = leaders(cluster)
        for _ in range(2):
            signal_all(ensemble, signal.SIGSTOP)
            until_s = time.monotonic() + GONE_S
            while time.monotonic() < until_s:
                read = len(reader.values)
                writers.wait_for_more()
                wait_until(lambda read=read: len(reader.values) > read, PATIENCE_S, "reads")  # type: ignore[misc]
                assert leaders(cluster) == before
            signal_all(ensemble, signal.SIGCONT)
            cluster.wait_in_sync()
            cluster.controller()
            writers.wait_for_more()
            print(f"leaders before {before}, afterwards {leaders(cluster)}")
            before = leaders(cluster)
        cluster.create("made-afterwards", 2, 3)
        reader.end(PATIENCE_S)
        writers.end_and_check()
