"""What docs/cluster.md shows is what works: its commands are run in the page's order on a cluster of its own, its
broker file is one that a broker takes, and the tests that it names are there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cluster.several import PATIENCE_S, Cluster, clusters
from cluster.shown import ROOT, Page, parse
from cluster.up import COMMAND
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file

PAGE = Page("docs/cluster.md")
NEW = 4
"""The broker with which the page has the cluster grow, and which it takes out again."""


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


def test_the_configuration_of_the_page_is_one_that_a_broker_takes() -> None:
    (block,) = (block for kind, block in PAGE.blocks if kind == "toml")
    config = BrokerConfig.parse(parse_file("broker.toml", block))
    assert (config["min.insync.replicas"], config.warnings) == (2, [])


def test_the_tests_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.text))
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) >= 7
    assert named <= set(re.findall(r"^def (test_\w+)", sources, re.M))


class Operator:
    """Types what the page shows, with folders that there are; for `systemctl` it ends and starts the process."""

    def __init__(self, cluster: Cluster, folders: Mapping[str, Path]) -> None:
        self._cluster = cluster
        self._folders = folders
        self._environment = {**os.environ, "MOLDAU_BOOTSTRAP": cluster.bootstrap}

    def type(self, line: str) -> str:
        """What was printed."""
        for shown, there in self._folders.items():
            line = line.replace(shown, str(there))
        if line == "systemctl restart moldau":
            self._cluster.stop(1)
            self._cluster.start(1)
        elif line == "systemctl stop moldau":
            self._cluster.stop(NEW)
        else:
            done = subprocess.run(
                [*COMMAND, *shlex.split(line)[1:]],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout
        return ""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clusters(tmp_path) as make:
        yield make(NEW, default_replication_factor=3, min_insync_replicas=2)


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(cluster: Cluster) -> None:
    cluster.create("orders", 8, 3)
    broker = cluster.brokers[1]
    folders = {"/disk1/moldau": broker.data, "/disk2/moldau": broker.folder / "disk2"}
    cluster.stop(1)
    broker.settings = {**broker.settings, "log.dirs": ",".join(map(str, folders.values()))}
    cluster.start(1)
    operator = Operator(cluster, folders)
    lines = [line for line in PAGE.lines() if line and not line.startswith("moldau up")]
    assert {line.split()[0] for line in lines} == {"moldau", "systemctl"}
    for line in lines:
        operator.type(line)
    cluster.wait_in_sync()
    left = {replica for view in cluster.views("orders", 1) for replica in view.replicas}
    assert left == {1, 2, 3}, "the last thing that the page does is to take broker 4 out"
    described = json.loads(operator.type("moldau cluster describe --json"))
    assert [broker["id"] for broker in described["brokers"]] == [1, 2, 3]
