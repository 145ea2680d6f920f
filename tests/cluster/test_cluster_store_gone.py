"""The cluster store gone for longer than the sessions, so that all of them end together.

All nodes of the ZooKeeper ensemble are stopped; the SQLite file is locked by another process, so that no lease can be
renewed. Brokers go on with the leaders that they have, and when the store is back they are in the cluster as before:
no leader has changed, no in-sync set has shrunk, and no client has had to wait (R7).
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cluster.several import ENGINES, PATIENCE_S, SESSION_MS, Cluster, View, clusters
from cluster.several_clients import GroupReader
from cluster.several_work import Writers
from cluster.support import wait_until
from contract.ensembles import running_ensemble

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
GONE_S = 2 * SESSION_MS / 1000
TIMES = 2
USUAL_SEED = 14

Gone = Callable[[], AbstractContextManager[None]]
"""The store is gone while the block runs."""


@contextmanager
def store_that_goes(engine: str, folder: Path) -> Iterator[tuple[str, Gone]]:
    """Its address, and how to have it gone."""
    if engine == "sqlite":
        path = folder / "cluster.sqlite"
        yield f"sqlite:{path}", lambda: locked(path)
        return
    with running_ensemble(folder / "zookeeper") as ensemble:

        @contextmanager
        def stopped() -> Iterator[None]:
            for node in ensemble.nodes:
                node.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                for node in ensemble.nodes:
                    node.signal(signal.SIGCONT)

        yield f"{ensemble.url}/gone", stopped


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else writes to the file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def views(cluster: Cluster) -> dict[int, list[View]]:
    return {broker_id: cluster.views(TOPIC, broker_id) for broker_id in cluster.ids}


def times_joined(cluster: Cluster) -> list[int]:
    return [broker.said().count("is in the cluster again") for broker in cluster.brokers.values()]


@pytest.mark.parametrize("engine", ENGINES)
def test_without_the_store_leaders_go_on_and_with_it_all_is_as_it_was(
    engine: str, tmp_path: Path, seed: Callable[[int], int]
) -> None:
    with store_that_goes(engine, tmp_path) as (store, gone), clusters(tmp_path) as make:
        cluster = make(3, store)
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
        writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
        reader = GroupReader("reader", cluster.bootstrap, "readers", [TOPIC], 1)
        reader.start()
        wait_until(lambda: bool(reader.committed), PATIENCE_S, "the group to work")
        writers.wait_for_more()
        before = views(cluster)
        for writer in writers.raw:
            writer.longest_s = 0
        for number in range(1, TIMES + 1):
            with gone():
                until_s = time.monotonic() + GONE_S
                while time.monotonic() < until_s:
                    read = len(reader.values)
                    writers.wait_for_more()
                    wait_until(lambda read=read: len(reader.values) > read, PATIENCE_S, "reads")  # type: ignore[misc]
                    assert views(cluster) == before
            wait_until(
                lambda number=number: min(times_joined(cluster)) >= number,  # type: ignore[misc]
                PATIENCE_S,
                "all brokers to be in the cluster again",
            )
            until_s = time.monotonic() + 2 * SESSION_MS / 1000
            while time.monotonic() < until_s:
                writers.wait_for_more()
            assert views(cluster) == before
        longest_s = max(writer.longest_s for writer in writers.raw)
        print(f"{engine}: longest pause of a writer {longest_s:.2f} s")
        assert not any(writer.errors for writer in writers.raw)
        cluster.create("made-afterwards", 2, 3)
        reader.end(PATIENCE_S)
        writers.end_and_check()
