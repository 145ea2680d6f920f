"""All brokers killed at once, and started again: nothing that was acknowledged is lost (R5, promise 1).

Nothing is synced for an acknowledgement: a killed process leaves its page cache behind. What a power cut takes away is
the simulation's part.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.several import ENGINES, PATIENCE_S, Cluster, clusters, store_of
from cluster.several_work import Writers

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
TIMES = 3
USUAL_SEED = 20_261_118


def start_in_any_order(cluster: Cluster, chance: random.Random) -> None:
    order = chance.sample(cluster.ids, len(cluster.ids))
    for broker_id in order:
        cluster.launch(broker_id)
        time.sleep(chance.uniform(0, 1) ** 2)
    for broker_id in order:
        cluster.brokers[broker_id].wait_ready(PATIENCE_S)


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_acknowledged_is_lost_when_all_brokers_are_killed_at_once(
    engine: str, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    with store_of(engine, tmp_path) as store, clusters(tmp_path) as new_cluster:
        cluster = new_cluster(3, store)
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        writers = Writers(cluster, TOPIC, PARTITIONS, chance.getrandbits(32))
        for _ in range(TIMES):
            writers.wait_for_more()
            time.sleep(chance.uniform(0.1, 1.0))
            cluster.kill(*cluster.ids)
            promised = writers.acknowledged()
            start_in_any_order(cluster, chance)
            writers.wait_for_more()
            writers.stored.read(promised)
        writers.end_and_check()
