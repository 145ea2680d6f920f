"""`moldau group`, and `moldau message consume --group`, against a broker in this process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from cluster.support import wait_until
from moldau.testing import Cluster

from .test_cli_client import COMMAND, TIMEOUT_S, Cli

NOT_FOUND, USAGE, FAILED = 4, 2, 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3}) as running:
        yield running


@pytest.fixture
def moldau(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(cluster, monkeypatch, capfdbinary)


@pytest.fixture
def topic(moldau: Cli, request: pytest.FixtureRequest) -> str:
    """With two partitions of ten messages each."""
    name: str = re.sub(r"[^\w.-]", "-", request.node.name)[:200]
    moldau.run("topic", "create", name, "--partitions", "2")
    for partition in ("0", "1"):
        lines = "".join(f"{partition}-{number}\n" for number in range(10))
        moldau.run("message", "produce", name, "--partition", partition, stdin=lines.encode())
    return name


def described(moldau: Cli, group: str) -> Any:
    (document,) = json.loads(moldau.run("group", "describe", group, "--json").stdout)
    return document


def offsets(moldau: Cli, group: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] for row in described(moldau, group)["partitions"]}


# ---- consuming ----------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_was(moldau: Cli, topic: str) -> None:
    first = moldau.run("message", "consume", topic, "--group", topic, "--count", "7").stdout.split()
    rest = moldau.run("message", "consume", topic, "--group", topic).stdout.split()

    assert len(first) == 7
    assert sorted(first + rest) == sorted(f"{p}-{n}".encode() for p in range(2) for n in range(10))
    assert moldau.run("message", "consume", topic, "--group", topic).stdout == b""


def test_a_new_group_can_begin_at_the_end(moldau: Cli, topic: str) -> None:
    assert moldau.run("message", "consume", topic, "--group", topic, "--from", "end").stdout == b""


@pytest.mark.parametrize(
    "options", [["--partition", "0"], ["--to", "end"], ["--from", "5"]], ids=lambda o: o[0]
)
def test_what_a_group_decides_cannot_be_said(moldau: Cli, options: list[str]) -> None:
    done = moldau.run("message", "consume", "orders", "--group", "g", *options, code=USAGE)
    assert b"--group" in done.stderr


def test_following_members_share_the_partitions(
    cluster: Cluster, moldau: Cli, topic: str, tmp_path: Path
) -> None:
    command = [*COMMAND, "message", "consume", topic, "--group", topic, "--follow"]
    command += ["--bootstrap", cluster.bootstrap_servers]
    outputs = [tmp_path / "one.txt", tmp_path / "other.txt"]
    everything = {f"{p}-{n}" for p in range(2) for n in range(10)}
    members = []
    try:
        for output in outputs:
            with output.open("wb") as file:
                members.append(subprocess.Popen(command, stdout=file))
        document = wait_for_members(moldau, topic, 2)
        owners = [row["member_id"] for row in document["partitions"]]
        assert len(set(owners)) == 2
        wait_until(
            lambda: {line for output in outputs for line in output.read_text().split()} == everything,
            timeout_s=TIMEOUT_S,
            what="all messages",
        )
        for member in members:
            member.send_signal(signal.SIGINT)
        assert [member.wait(TIMEOUT_S) for member in members] == [0, 0]
    finally:
        for member in members:
            member.kill()
            member.wait()


def wait_for_members(moldau: Cli, group: str, count: int) -> Any:
    """The group as it is described when its members have their partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        if json.loads(moldau.run("group", "list", group, "--json").stdout):
            document = described(moldau, group)
            if document["state"] == "Stable" and len(document["members"]) == count:
                return document
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- showing ------------------------------------------------------------------------------------------------


def test_a_group_is_listed_and_described_with_its_lag(moldau: Cli, topic: str) -> None:
    moldau.run("group", "reset", topic, "--to", "4", "--topic", topic, "--execute")

    (listed,) = json.loads(moldau.run("group", "list", topic, "--json").stdout)
    assert listed == {"group": topic, "state": "Empty", "type": "classic"}
    document = described(moldau, topic)
    assert (document["state"], document["lag"], document["members"]) == ("Empty", 12, [])
    shown = moldau.run("group", "describe", topic).stdout.decode()
    assert "lag 12" in shown and shown.count(topic) == 3


def test_a_member_is_shown_with_its_partitions(cluster: Cluster, moldau: Cli, topic: str) -> None:
    with member_of(cluster, topic):
        document = wait_for_members(moldau, topic, 1)

        (member,) = document["members"]
        assert (member["client_id"], member["host"]) == ("shown", "127.0.0.1")
        assert [row["partition"] for row in member["partitions"]] == [0, 1]
        assert {row["member_id"] for row in document["partitions"]} == {member["member_id"]}
        assert "shown (127.0.0.1)" in moldau.run("group", "describe", topic).stdout.decode()


class member_of:
    """A consumer that is in the group while the block lasts."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "client.id": "shown"}
        self._consumer = Consumer(settings | {"enable.auto.commit": False})
        self._consumer.subscribe([topic])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._consumer.poll(0.05)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


def test_a_group_that_is_not_there_is_told_with_its_neighbours(moldau: Cli, topic: str) -> None:
    moldau.run("group", "reset", topic, "--to", "end", "--topic", topic, "--execute")
    done = moldau.run("group", "describe", topic[:-1], code=NOT_FOUND)

    assert f"Did you mean {topic}" in done.stderr.decode()
    done = moldau.run("group", "reset", topic[:-1], "--to", "end", code=NOT_FOUND)
    assert "A new one is given a place with --topic" in done.stderr.decode()


def test_groups_are_described_by_a_pattern(moldau: Cli, topic: str) -> None:
    for group in (f"{topic}-a", f"{topic}-b", f"{topic}-*"):
        moldau.run("group", "reset", group, "--to", "end", "--topic", topic, "--execute")

    def names(*words: str) -> list[str]:
        return [row["group"] for row in json.loads(moldau.run("group", "describe", *words, "--json").stdout)]

    assert names(f"{topic}-?") == [f"{topic}-*", f"{topic}-a", f"{topic}-b"]
    assert names(f"{topic}-b", f"{topic}-?") == [f"{topic}-b", f"{topic}-*", f"{topic}-a"]
    assert names(f"{topic}-*") == [f"{topic}-*"]  # a name, before it is a pattern
    done = moldau.run("group", "describe", f"{topic}-c*", code=NOT_FOUND)
    assert "No group matches" in done.stderr.decode()


# ---- resetting ----------------------------------------------------------------------------------------------


def test_a_reset_is_only_shown_until_it_is_executed(moldau: Cli, topic: str) -> None:
    moldau.run("group", "reset", topic, "--to", "end", "--topic", topic, "--execute")
    done = moldau.run("group", "reset", topic, "--to", "beginning")

    assert b"Nothing was changed" in done.stderr
    assert offsets(moldau, topic) == {0: 10, 1: 10}
    moldau.run("group", "reset", topic, "--to", "beginning", "--execute")
    assert offsets(moldau, topic) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to", "beginning"], {0: 0, 1: 0}),
        (["--to", "earliest"], {0: 0, 1: 0}),
        (["--to", "end"], {0: 10, 1: 10}),
        (["--to", "latest"], {0: 10, 1: 10}),
        (["--to", "7"], {0: 7, 1: 7}),
        (["--to", "70"], {0: 10, 1: 10}),
        (["--to", "-3"], {0: 7, 1: 7}),
        (["--to", "-1h"], {0: 0, 1: 0}),
        (["--to", "2099-01-01T00:00"], {0: 10, 1: 10}),
        (["--shift", "2"], {0: 7, 1: 7}),
        (["--shift", "-2"], {0: 3, 1: 3}),
        (["--shift", "-100"], {0: 0, 1: 0}),
        (["--shift", "3", "--partition", "1"], {0: 5, 1: 8}),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_a_group_is_reset_to(moldau: Cli, topic: str, options: list[str], expected: dict[int, int]) -> None:
    moldau.run("group", "reset", topic, "--to", "5", "--topic", topic, "--execute")
    document = json.loads(moldau.run("group", "reset", topic, *options, "--execute", "--json").stdout)

    assert document["executed"]
    assert offsets(moldau, topic) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "70"], "has no offset 70: 10 is the nearest (and so in 1 more)"),
        (["--shift", "-100", "--partition", "1"], ":1 has no offset -95: 0 is the nearest."),
        (["--to", "10"], ""),
        (["--to", "-100"], ""),
    ],
)
def test_an_offset_that_is_not_there_is_told(moldau: Cli, topic: str, options: list[str], said: str) -> None:
    moldau.run("group", "reset", topic, "--to", "5", "--topic", topic, "--execute")
    told = moldau.run("group", "reset", topic, *options).stderr.decode()

    assert said in told if said else "nearest" not in told


def test_a_group_with_members_is_neither_reset_nor_deleted(cluster: Cluster, moldau: Cli, topic: str) -> None:
    with member_of(cluster, topic):
        wait_for_members(moldau, topic, 1)
        refused = moldau.run("group", "reset", topic, "--to", "end", "--execute", code=FAILED)
        assert b"has members" in refused.stderr
        refused = moldau.run("group", "delete", topic, code=FAILED)
        assert b"has members" in refused.stderr


@pytest.mark.parametrize("options", [[], ["--to", "end", "--shift", "1"]], ids=["neither", "both"])
def test_a_reset_wants_one_target(moldau: Cli, options: list[str]) -> None:
    assert b"--to or --shift" in moldau.run("group", "reset", "g", *options, code=USAGE).stderr


# ---- deleting -----------------------------------------------------------------------------------------------


def test_a_refusal_without_words_is_told_by_its_code(moldau: Cli) -> None:
    assert "INVALID_GROUP_ID" in moldau.run("group", "describe", "", code=FAILED).stderr.decode()


def test_groups_are_deleted_with_their_offsets(moldau: Cli, topic: str) -> None:
    moldau.run("group", "reset", topic, "--to", "5", "--topic", topic, "--execute")
    assert b"deleted" in moldau.run("group", "delete", topic).stdout

    moldau.run("group", "describe", topic, code=NOT_FOUND)
    moldau.run("group", "delete", topic, code=NOT_FOUND)
    assert b"absent" in moldau.run("group", "delete", topic, "--if-exists").stdout
