"""A disk fails under replication: its partitions are led by others, and a new disk is filled again. Root only.

(Kafka's log_dir_failure_test.) One broker that is alone with its disks: `test_disks`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.disks import disk
from cluster.several import PATIENCE_S, Cluster, clusters
from cluster.several_work import Writers
from cluster.support import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(sys.platform != "linux", reason="Mounts file systems as Linux does it."),
]

TOPIC = "survivors"
PARTITIONS = 6
BROKER = 1
SIZE_MB = 64
USUAL_SEED = 18


def on_disk(folder: Path) -> list[int]:
    """The topic's partitions that lie there."""
    return sorted(int(one.name.rpartition("-")[2]) for one in folder.glob(f"{TOPIC}-*"))


def lacks(cluster: Cluster, broker_id: int, partitions: list[int]) -> bool:
    views = cluster.views(TOPIC)
    return all(broker_id not in views[index].isr and views[index].leader > 0 for index in partitions)


def test_a_disk_that_fails_takes_its_replicas_along_and_a_new_one_is_filled_again(
    tmp_path: Path, seed: Callable[[int], int]
) -> None:
    with (
        disk(tmp_path / "old", SIZE_MB, "ext4") as old,
        disk(tmp_path / "new", SIZE_MB, "ext4") as new,
        clusters(tmp_path) as make,
    ):
        cluster = make(3)
        broker = cluster.brokers[BROKER]
        cluster.stop(BROKER)
        broker.settings = {**broker.settings, "log.dirs": f"{broker.data},{old.path / 'data'}"}
        cluster.start(BROKER)
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        failing = on_disk(old.path / "data")
        assert failing and len(failing) < PARTITIONS, "they lie on both disks"
        writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
        writers.wait_for_more()
        promised = writers.acknowledged()
        old.die()
        wait_until(lambda: lacks(cluster, BROKER, failing), PATIENCE_S, "others to lead what the disk had")
        writers.wait_for_more()
        writers.stored.read(promised)
        views = cluster.views(TOPIC)
        assert all(BROKER in view.isr for index, view in enumerate(views) if index not in failing)
        cluster.kill(BROKER)
        (new.path / "data").mkdir()
        (new.path / "data" / "meta.properties").touch()
        broker.settings["log.dirs"] = f"{broker.data},{new.path / 'data'}"
        cluster.start(BROKER)
        cluster.wait_in_sync()
        assert on_disk(new.path / "data") or len(on_disk(broker.data)) == PARTITIONS
        writers.wait_for_more()
        writers.end_and_check()
