"""What a broker's process tells the cluster store of itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cluster.several import Cluster, NewCluster, clusters

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    with clusters(tmp_path) as make:
        yield make


def asked(cluster: Cluster, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(cluster.folder / "cluster.sqlite")) as database:
        return database.execute(statement).fetchall()


def test_its_session_lasts_as_long_as_broker_session_timeout_ms_says(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, broker_session_timeout_ms=4321)
    assert asked(cluster, "SELECT timeout_s FROM sessions") == [(4.321,)]


@pytest.mark.skipif(not BOOT_ID.exists(), reason="the system does not tell the boot id")
def test_it_registers_with_the_boot_id_of_the_machine(new_cluster: NewCluster) -> None:
    """By which the controller tells a killed process, whose page cache is there, from a power cut (promise 1)."""
    cluster = new_cluster(1)
    ((value,),) = asked(cluster, "SELECT value FROM entries WHERE path = '/brokers/registered/1'")
    assert isinstance(value, bytes)
    assert json.loads(value)["boot_id"] == BOOT_ID.read_text().strip()
