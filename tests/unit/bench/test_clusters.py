"""Clusters of processes for the benchmarks: their brokers are killed and started again one by one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import replicated
from bench.clusters import MoldauCluster
from bench.measure import Reading
from bench.replicated import catching_up, fail_over, many_partitions, throughput

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It reads /proc.")


def test_a_cluster_is_measured_whole_and_killed_in_parts(tmp_path: Path) -> None:
    readings: list[Reading] = []
    with MoldauCluster(tmp_path) as cluster:
        assert sorted(cluster.living) == [1, 2, 3] and cluster.controller() in cluster.living
        readings += throughput(cluster, 100, 100_000)
        pids = {number: node.pid for number, node in cluster.nodes.items()}
        readings += fail_over(cluster, with_controller=True)
        assert sorted(cluster.living) == [1, 2, 3]
        changed = [number for number, node in cluster.nodes.items() if node.pid != pids[number]]
        assert len(changed) == 1
        assert cluster.usage().rss_bytes > max(node.usage().rss_bytes for node in cluster.nodes.values())
    assert not cluster.living
    assert [reading.unit for reading in readings] == ["MB/s", "ms/MB", "s", "s"]
    assert all(reading.value > 0 for reading in readings)


def test_a_follower_that_catches_up_is_measured_with_a_writer_beside_it(tmp_path: Path) -> None:
    with MoldauCluster(tmp_path) as cluster:
        readings = list(catching_up(cluster, 2_000_000))
        assert sorted(cluster.living) == [1, 2, 3]
    assert [reading.unit for reading in readings] == ["s", "ms/MB", *["ms"] * 8]
    assert len({reading.name for reading in readings}) == len(readings)


def test_many_partitions_are_made_and_led_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "IDLE_S", 0.2)
    monkeypatch.setattr(replicated, "SETTLE_S", 0.1)
    with MoldauCluster(tmp_path) as cluster:
        readings = list(many_partitions(cluster, 60))
    what = "60 partitions on 3 brokers, "
    assert [reading.name.removeprefix(what) for reading in readings] == [
        "made",
        "memory per 1,000",
        "idle CPU per 1,000",
        "writes to all after a kill",
        "led by others after a kill",
        "killed broker back in all sets",
    ]
