"""Clusters of processes for the benchmarks: their brokers are killed and started again one by one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moldau.bench.clusters import MoldauCluster
from moldau.bench.measure import Reading
from moldau.bench.replicated import fail_over, throughput

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
