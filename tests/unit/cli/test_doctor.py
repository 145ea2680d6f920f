"""What doctor says of machines and folders that lack something."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.cli import doctor_machine
from moldau.cli.doctor import summary
from moldau.cli.doctor_cluster import broker, partitions
from moldau.cli.doctor_data import examine_data
from moldau.cli.findings import Status


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free", "expected"), [(100 << 20, Status.PROBLEM), (2 << 30, Status.WARNING), (100 << 30, Status.OK)]
)
def test_little_room_on_the_disk_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, expected: Status
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Usage(200 << 30, 0, free))
    finding = doctor_machine.disk_space(str(tmp_path / "not" / "there" / "yet"))
    assert finding.status is expected
    assert str(tmp_path) in finding.text


def test_a_port_that_is_taken_is_noted() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert doctor_machine.port_state(port).status is Status.NOTE
    assert doctor_machine.port_state(port).status is Status.OK


def test_a_missing_package_is_a_problem_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_machine, "version_of", lambda name: None if name == "cramjam" else "1")
    first = next(doctor_machine.packages())
    assert (first.status, first.advice) == (Status.PROBLEM, "pip install cramjam")


def problems(folder: Path) -> list[str]:
    return [
        finding.text for finding in examine_data(str(folder), deep=True) if finding.status is Status.PROBLEM
    ]


def test_a_folder_that_is_missing_or_not_moldaus_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path / "missing") == [f"there is no folder {tmp_path / 'missing'}"]
    assert problems(tmp_path) == [f"{tmp_path} holds no data of Moldau"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as `moldau up` leaves it, with one empty log."""
    broker_folder = tmp_path / "broker-1"
    (broker_folder / "orders-0").mkdir(parents=True)
    (broker_folder / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n")
    (broker_folder / ".kafka_cleanshutdown").write_text("")
    (broker_folder / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    (broker_folder / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    return tmp_path


def damage_store(data: Path) -> None:
    (data / "cluster.sqlite").write_text("this is not a database, though it is long enough to be one" * 20)


def damage_identity(data: Path) -> None:
    (data / "broker-1" / "meta.properties").write_text("rubbish")


def damage_log(data: Path) -> None:
    (data / "broker-1" / "orders-0" / "00000000000000000000.log").write_bytes(b"\xff" * 100)


def damage_partition(data: Path) -> None:
    (data / "broker-1" / "orders-0" / "partition.metadata").write_text("rubbish")


def test_a_sound_folder_has_no_problem(data: Path) -> None:
    assert problems(data) == []
    assert problems(data / "broker-1") == []


def test_the_store_of_a_folder_that_may_only_be_read_is_read_all_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = data / "cluster.sqlite"
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE entries (name TEXT)")
        connection.commit()
    monkeypatch.setattr(os, "access", lambda *_arguments: False)  # root may write everywhere
    assert problems(data) == ["this user may not write there"]
    assert {path.name for path in data.iterdir()} == {"broker-1", "cluster.sqlite"}, "nothing was written"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_store, "cannot be read"),
        (damage_identity, "meta.properties is damaged"),
        (damage_log, "00000000000000000000.log at 0"),
        (damage_partition, "partition.metadata is damaged"),
    ],
)
def test_damage_is_found_and_nothing_is_changed(
    data: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    (found,) = problems(data)
    assert said in found
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_only_a_warning_because_it_is_rebuilt(data: Path) -> None:
    (data / "broker-1" / "recovery-point-offset-checkpoint").write_text("0\n7\norders 0 0\n")
    (found,) = (f for f in examine_data(str(data), deep=False) if f.status is Status.WARNING)
    assert found.subject == "checkpoint" and "rebuilt" in found.advice


class Node(NamedTuple):
    id: int
    host: str
    port: int


class Partition(NamedTuple):
    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]


class Topic(NamedTuple):
    partitions: dict[int, Partition]


def test_a_broker_that_advertises_what_cannot_be_reached_is_a_problem() -> None:
    finding = broker(Node(3, "no-such-host.invalid", 9092))
    assert finding.status is Status.PROBLEM
    assert "advertises no-such-host.invalid:9092" in finding.text and "advertised.listeners" in finding.advice


def test_partitions_that_are_not_well_are_named() -> None:
    topics = {
        "a": Topic({0: Partition(0, 1, [1, 2], [1, 2]), 1: Partition(1, -1, [2], [2])}),
        "b": Topic({0: Partition(0, 1, [1, 2], [1])}),
        "c": Topic({0: Partition(0, 1, [1, 2], [1])}),
    }
    found = {finding.subject: finding for finding in partitions(topics, {"c": 2})}
    assert found["offline"].status is Status.PROBLEM and "1 partition (a-1)" in found["offline"].text
    assert found["min ISR"].status is Status.PROBLEM and "1 partition (c-0)" in found["min ISR"].text
    assert found["replicas"].status is Status.WARNING and "1 partition (b-0)" in found["replicas"].text
    assert "partitions" not in found


def test_the_last_line_is_about_the_worst_that_was_found() -> None:
    assert "2 to mend" in summary(Counter({Status.PROBLEM: 2, Status.WARNING: 1}))
    assert "1 to look at" in summary(Counter({Status.WARNING: 1, Status.OK: 3}))
    assert "No problem found" in summary(Counter({Status.OK: 3, Status.NOTE: 1}))
