"""A network that is slow, not cut: so many bytes a second pass, the others wait or are dropped (network_degrade_test).

Writes take longer; nobody is taken for dead, no leader changes, and nothing is lost. What comes late by a fixed time is
the simulation's part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.networks import networks
from cluster.several import Cluster, clusters
from cluster.several_work import Writers

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
SLOW_S = 2.0
RATE_KBIT, WAIT_MS = 1000, 200
SESSION_MS = 9000
"""The default: longer than a busy queue keeps a word."""
USUAL_SEED = 16


def leaders(cluster: Cluster) -> list[tuple[int, int]]:
    return [(view.leader, view.epoch) for view in cluster.views(TOPIC)]


def acknowledged_in(writers: Writers, lasting_s: float) -> int:
    """How many messages, in that time."""
    before, until_s = len(writers.acknowledged()), time.monotonic() + lasting_s
    while time.monotonic() < until_s:
        writers.wait_for_more()
    return len(writers.acknowledged()) - before


def test_a_slow_network_changes_no_leader_and_loses_nothing(
    tmp_path: Path, seed: Callable[[int], int]
) -> None:
    with networks(3) as network, clusters(tmp_path) as make:
        cluster = make(3, network=network, broker_session_timeout_ms=SESSION_MS)
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
        counts = {"as it is": acknowledged_in(writers, SLOW_S)}
        before = leaders(cluster)
        network.slow_down(cluster.controller(), RATE_KBIT, WAIT_MS)
        counts["the controller slow"] = acknowledged_in(writers, SLOW_S)
        for broker_id in cluster.ids:
            network.slow_down(broker_id, RATE_KBIT, WAIT_MS)
        counts["all slow"] = acknowledged_in(writers, SLOW_S)
        assert leaders(cluster) == before
        for broker_id in cluster.ids:
            network.speed_up(broker_id)
        cluster.wait_in_sync()
        counts["as it was"] = acknowledged_in(writers, SLOW_S)
        print(f"acknowledged in {SLOW_S:g} s: {counts}")
        assert counts["all slow"] < counts["as it was"]
        writers.end_and_check()
