"""What docs/security.md says is open, and what closes it: addresses that nobody else reaches, and what is refused."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from cluster.shown import Page, parse
from cluster.support import wait_until
from cluster.test_cli_up import Process, refused
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file
from moldau.security.rights_page import with_table

PAGE = Page("docs/security.md")
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
"""Two addresses of this machine: what listens on one of them only is not there on the other."""


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str, tmp_path: Path) -> None:
    parse(line.replace("broker.toml", str(configured(tmp_path))))


def configured(folder: Path) -> Path:
    """A file by which a broker would listen on all addresses."""
    file = folder / "broker.toml"
    file.write_text(f'node.id = 1\nlog.dirs = "{folder}/data"\nlisteners = ["PLAINTEXT://0.0.0.0:0"]\n')
    return file


def test_the_listeners_of_the_page_are_two_of_which_one_is_for_other_machines() -> None:
    (block,) = (block for kind, block in PAGE.blocks if kind == "toml")
    config = BrokerConfig.parse(parse_file("broker.toml", block))
    assert [(endpoint.name, endpoint.host) for endpoint in config.listeners] == [
        ("LOCAL", HERE),
        ("PRIVATE", "10.0.0.5"),
    ]
    assert config.warnings == []


def test_an_authorizer_that_moldau_has_not_is_refused_and_other_keys_are_named_in_a_warning(
    tmp_path: Path,
) -> None:
    (tmp_path / "server.properties").write_text("node.id=1\nauthorizer.class.name=com.example.Ours\n")
    text = refused(tmp_path, "broker", "--config", "server.properties", code=2)
    assert "com.example.Ours is none of Moldau's" in text
    config = BrokerConfig.parse(
        {"node.id": "1", "log.dirs": "/x", "ssl.keystore.location": "/k", "sasl.kerberos.service.name": "x"}
    )
    assert [warning.split()[0] for warning in config.warnings] == ["sasl.kerberos.service.name"]


def test_the_settings_of_the_page_switch_acls_on() -> None:
    (block,) = (block for kind, block in PAGE.blocks if kind == "properties")
    config = BrokerConfig.parse(parse_file("server.properties", block))
    assert config["authorizer.class.name"] in AUTHORIZERS
    assert config.warnings == []


def test_the_table_of_the_page_is_the_table_of_the_code() -> None:
    assert with_table(PAGE.text) == PAGE.text


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.slow
def test_a_broker_for_this_machine_is_not_there_for_others(tmp_path: Path) -> None:
    (command,) = (line for line in PAGE.lines() if line.startswith("moldau broker"))
    arguments = command.replace(":9092", ":0").replace("broker.toml", str(configured(tmp_path))).split()[1:]
    process = Process(tmp_path, *arguments, "--set", "moldau.http.port=0")
    try:
        host, port = process.bootstrap_servers.split(":")
        assert host == HERE
        wait_until(
            lambda: "http://127.0.0.1:" in process.errors.read_text(), what="the log's word on /metrics"
        )
        (http,) = re.findall(r"http://127\.0\.0\.1:(\d+)", process.errors.read_text())
        for number in (int(port), int(http)):
            assert can_connect(HERE, number)
            assert not can_connect(ELSEWHERE, number)
    finally:
        process.end()


@pytest.mark.slow
@pytest.mark.parametrize("came_to", [HERE, ELSEWHERE])
def test_a_client_is_told_the_address_that_it_came_to(tmp_path: Path, came_to: str) -> None:
    process = Process(tmp_path, "up", "--open", "--port", "0", "--data", ":temp:")
    try:
        port = process.bootstrap_servers.split(":")[1]
        admin = AdminClient({"bootstrap.servers": f"{came_to}:{port}"})
        (broker,) = admin.list_topics(timeout=10).brokers.values()
        assert (broker.host, str(broker.port)) == (came_to, port)
    finally:
        process.end()


@pytest.mark.slow
@pytest.mark.parametrize("first_bytes", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 32])
def test_a_client_that_begins_tls_is_turned_away(tmp_path: Path, first_bytes: bytes) -> None:
    process = Process(tmp_path, "up", "--port", "0", "--data", ":temp:")
    try:
        port = int(process.bootstrap_servers.split(":")[1])
        with socket.create_connection((HERE, port), 10) as connection:
            connection.settimeout(10)
            connection.sendall(first_bytes)
            assert connection.recv(1) == b"", "closed, without a word"
    finally:
        process.end()
