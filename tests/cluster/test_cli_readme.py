"""What README.md shows is what works: its commands are run, its client snippets too, against a broker of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cluster.shown import Page, parse
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file
from moldau.testing import Cluster

README = Page("README.md")
TIMEOUT_S = 60
CLIENTS = {
    match[1]: block
    for kind, block in README.blocks
    if kind == "python" and (match := re.search(r"from (kafka|aiokafka) import", block))
}


@pytest.mark.parametrize("line", sorted(set(README.commands())))
def test_every_command_of_the_readme_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


def test_the_readme_shows_commands_of_every_kind() -> None:
    shown = {line.split()[1] for line in README.commands()}
    assert shown >= {"up", "topic", "message", "config", "bench", "doctor", "log"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3}) as running:
        yield running


@pytest.mark.parametrize("client", ["kafka", "aiokafka"])
def test_the_clients_of_the_readme_work_as_they_are_shown(client: str, cluster: Cluster) -> None:
    code = CLIENTS[client].replace("localhost:9092", cluster.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("b'3 p")


def test_the_configuration_of_the_readme_is_one_that_a_broker_takes() -> None:
    (block,) = (block for kind, block in README.blocks if kind == "toml")
    config = BrokerConfig.parse(parse_file("broker.toml", block))
    assert (config.log_dir, config.warnings) == ("/var/lib/moldau", [])
