"""Brokers that come back with less than they had: they catch up, come into line and are in sync again (R5).

With an emptied data folder, with a torn or lost tail, after a power cut, after a long absence. And how long a fail-over
takes: printed, not asserted, since the machine may be busy.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from cluster.several import ENGINES, PATIENCE_S, Cluster, NewCluster, clusters, store_of
from cluster.several_work import Writers
from cluster.support import wait_until
from needs import missing

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
USUAL_SEED = 13
TIMES = 3


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield make


def with_writers(new_cluster: NewCluster, seed: int, **settings: object) -> tuple[Cluster, Writers]:
    cluster = new_cluster(3, **settings)
    cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
    writers = Writers(cluster, TOPIC, PARTITIONS, seed)
    writers.wait_for_more()
    return cluster, writers


def logs(cluster: Cluster, broker_id: int) -> list[Path]:
    """The last segments of the topic's partitions."""
    data = cluster.brokers[broker_id].data
    return [sorted(folder.glob("*.log"))[-1] for folder in sorted(data.glob(f"{TOPIC}-*"))]


def empty(data: Path) -> None:
    """With the sign that it is to begin anew: without it, an empty folder is a disk that is not mounted."""
    shutil.rmtree(data)
    data.mkdir()
    (data / "meta.properties").touch()


def test_a_broker_with_an_emptied_data_folder_is_filled_again(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    cluster, writers = with_writers(new_cluster, seed(USUAL_SEED))
    for victim in (cluster.leader(TOPIC, 0), cluster.controller()):
        promised = writers.acknowledged()
        cluster.kill(victim)
        empty(cluster.brokers[victim].data)
        writers.wait_for_more()
        cluster.start(victim)
        cluster.wait_in_sync()
        writers.wait_for_more()
        writers.stored.read(promised)
    writers.end_and_check()


def test_an_emptied_broker_that_comes_back_at_once_does_not_lead_with_nothing(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    """Before the others know that it was gone: it is in the in-sync set still, but has nothing of what it says."""
    cluster, writers = with_writers(new_cluster, seed(USUAL_SEED))
    promised = writers.acknowledged()
    victim = cluster.leader(TOPIC, 0)
    others = [broker_id for broker_id in cluster.ids if broker_id != victim]
    cluster.kill(*cluster.ids)
    empty(cluster.brokers[victim].data)
    cluster.launch(victim)
    time.sleep(1)
    cluster.launch(*others)
    for broker_id in cluster.ids:
        cluster.brokers[broker_id].wait_ready(PATIENCE_S)
    writers.wait_for_more()
    writers.stored.read(promised)
    writers.end_and_check()


def test_a_broker_with_a_torn_tail_is_brought_into_line(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    """Its last batch cut in the middle, and rubbish behind the end; then a tail that is gone in whole batches."""
    cluster, writers = with_writers(new_cluster, seed(USUAL_SEED))
    for cut_bytes, rubbish in ((37, b""), (0, b"\0" * 500), (0, bytes(range(256))), (5_000, b"")):
        victim = cluster.leader(TOPIC, 1)
        cluster.kill(victim)
        for path in logs(cluster, victim):
            data = path.read_bytes()
            path.write_bytes(data[: len(data) - cut_bytes] + rubbish)
        writers.wait_for_more()
        cluster.start(victim)
        cluster.wait_in_sync()
        writers.wait_for_more()
    writers.end_and_check()


def after_a_boot(folder: Path) -> list[str]:
    """What a command begins with that is to find the machine booted anew since. Root only."""
    fresh = folder / "boot_id"
    fresh.write_text(f"{uuid4()}\n")
    command = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"']
    try:
        subprocess.run([*command, str(fresh), "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError) as error:
        missing(f"a machine that has booted anew cannot be played here (root is needed): {error}")
    return [*command, str(fresh)]


def test_a_broker_back_from_a_power_cut_does_not_lead_before_it_has_what_the_others_have(
    new_cluster: NewCluster, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    """All go down; the leader's machine loses what was not synced, has another boot id, and is up first (KIP-966)."""
    cluster, writers = with_writers(new_cluster, seed(USUAL_SEED))
    victim = cluster.leader(TOPIC, 0)
    cluster.brokers[victim].place = after_a_boot(tmp_path)
    cluster.kill(*cluster.ids)
    promised = writers.acknowledged()
    for path in logs(cluster, victim):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
    cluster.launch(victim)
    others = [broker_id for broker_id in cluster.ids if broker_id != victim]
    cluster.controller()
    time.sleep(1)
    assert all(view.leader != victim for view in cluster.views(TOPIC, victim)), "it lacks what others have"
    cluster.start(*others)
    cluster.brokers[victim].wait_ready(PATIENCE_S)
    writers.wait_for_more()
    writers.stored.read(promised)
    writers.end_and_check()


def test_a_broker_that_was_away_for_long_catches_up_while_others_write(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    """Segments are short, and some that it has are gone at the others (retention) when it is back."""
    cluster, writers = with_writers(new_cluster, seed(USUAL_SEED))
    cluster.create("bulk", 2, 3, min_insync_replicas=2, segment_bytes=1_048_576, retention_bytes=3_000_000)
    absent = next(i for i in cluster.ids if i not in (cluster.leader("bulk", 0), cluster.controller()))
    fill(cluster, 5_000_000)
    cluster.kill(absent)
    fill(cluster, 40_000_000)
    begun_s = time.monotonic()
    cluster.start(absent)
    cluster.wait_in_sync()
    print(f"in sync again {time.monotonic() - begun_s:.1f} s after its start, 40 MB behind")
    writers.wait_for_more()
    writers.end_and_check()


def fill(cluster: Cluster, size_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(size_bytes // 10_000):
        producer.produce("bulk", b"%09d" % number * 1111, partition=number % 2)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_after_the_death_of_a_leader_writes_go_on_and_it_comes_back(
    engine: str, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    with store_of(engine, tmp_path) as store, clusters(tmp_path) as make:
        cluster, writers = with_writers(lambda number: make(number, store), seed(USUAL_SEED))
        figures = []
        for number in range(TIMES):
            is_controller = number == 1
            victim = cluster.controller() if is_controller else follower_of_the_controller(cluster)
            led = [writers.raw[i] for i, view in enumerate(cluster.views(TOPIC)) if view.leader == victim]
            if not led:  # a controller that leads nothing here
                led = writers.raw
            counts = [len(writer.acknowledged()) for writer in led]
            begun_s = time.monotonic()
            cluster.kill(victim)
            wait_until(
                lambda led=led, counts=counts: all(  # type: ignore[misc]
                    len(w.acknowledged()) > count for w, count in zip(led, counts, strict=True)
                ),
                PATIENCE_S,
                "the next acknowledged write",
            )
            next_s = time.monotonic() - begun_s
            begun_s = time.monotonic()
            cluster.start(victim)
            ready_s = time.monotonic() - begun_s
            cluster.wait_in_sync()
            whole_s = time.monotonic() - begun_s
            figures.append(f"{next_s:.2f} s ({ready_s:.1f} s to serve, {whole_s:.1f} s to be in all sets)")
        print(
            f"{engine}: kill -9 of the leader to the next write: {', '.join(figures)}; second: the controller"
        )
        writers.end_and_check()


def follower_of_the_controller(cluster: Cluster) -> int:
    """A leader that is not the controller."""
    controller = cluster.controller()
    return next(view.leader for view in cluster.views(TOPIC) if view.leader != controller)
