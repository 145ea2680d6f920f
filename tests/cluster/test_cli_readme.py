"""What README.md shows is what works: its commands are run, its client snippets too, against a broker of their own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from moldau.cli.app import root
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file
from moldau.testing import Cluster

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TIMEOUT_S = 60
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.S | re.M)
CLIENTS = {
    match[1]: block
    for kind, block in BLOCKS
    if kind == "python" and (match := re.search(r"from (kafka|aiokafka) import", block))
}


def commands() -> Iterator[str]:
    """Every `moldau ...` of the README: in its blocks, and with arguments in its sentences."""
    for kind, block in BLOCKS:
        for line in block.splitlines() if not kind else ():
            if found := re.search(r"(?:^|\| )(moldau .*?)(?:  +#.*)?$", line):
                yield found[1]
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.S | re.M)
    yield from re.findall(r"`(moldau [^`\s]+ [^`]*)`", prose)


def parse(line: str) -> None:
    """As far as a command line goes without doing anything."""
    words = shlex.split(line)[1:]
    command: click.Command | None = root
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    command.make_context(command.name, words)


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_of_the_readme_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


def test_the_readme_shows_commands_of_every_kind() -> None:
    shown = {line.split()[1] for line in commands()}
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
    (block,) = (block for kind, block in BLOCKS if kind == "toml")
    config = BrokerConfig.parse(parse_file("broker.toml", block))
    assert (config.log_dir, config.warnings) == ("/var/lib/moldau", [])
