"""What docs/tls.md tells people to do, done: its commands, its files, and a client with the settings that it names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bench.server import HOST
from certificates import Authority
from cluster.shown import Page, parse
from cluster.test_cli_up import Process
from cluster.up import COMMAND, TIMEOUT_S
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file
from moldau.runtime.real.free_ports import free_port
from moldau.security.tls.mapping import PrincipalMapping

PAGE = Page("docs/tls.md")
FILES = [block for kind, block in PAGE.blocks if kind == "toml"]


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("node.id = 1\n")
    parse(line.replace("broker.toml", str(file)))


@pytest.mark.parametrize("block", FILES)
def test_every_setting_of_the_page_is_known_and_acts(block: str) -> None:
    assert BrokerConfig.parse(parse_file("broker.toml", block)).warnings == []


def test_the_rule_of_the_page_gives_the_name_that_it_says() -> None:
    (rules,) = re.findall(r'^ssl\.principal\.mapping\.rules = "(.*)"$', PAGE.text, re.M)
    assert PrincipalMapping(rules).name_of("CN=alice,O=Acme,C=DE") == "alice"


@pytest.mark.slow
def test_the_three_steps_make_a_broker_that_a_client_knows(tmp_path: Path) -> None:
    for line in PAGE.lines():
        if line.startswith("moldau certs"):
            subprocess.run(
                [*COMMAND, *line.split()[1:]],
                cwd=tmp_path,
                check=True,
                capture_output=True,
                timeout=TIMEOUT_S,
            )
    port = free_port()
    (tmp_path / "broker.toml").write_text(FILES[0].replace("0.0.0.0:9093", f"{HOST}:{port}"))
    process = Process(tmp_path, "broker", "--config", "broker.toml")
    try:
        (given,) = re.findall(r"Producer\((\{.*\})\)", PAGE.text)
        settings = eval(given.replace("9093", str(port)).replace("certs/", f"{tmp_path}/certs/"))
        (broker,) = AdminClient(settings).list_topics(timeout=TIMEOUT_S).brokers.values()
        assert broker.port == port
        (tmp_path / "certs" / "ca.crt").write_bytes(Authority("Another").pem)
        with pytest.raises(Exception, match=r"Failed to get metadata|Local: |_TRANSPORT"):
            AdminClient({**settings, "log_level": 0}).list_topics(timeout=3)
    finally:
        process.end()
