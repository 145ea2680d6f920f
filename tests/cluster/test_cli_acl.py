"""`moldau acl` against a broker in this process: ACLs added, listed, checked and removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.cli.acl import decided, document
from moldau.cli.app import run
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.security.acls import Acl, Entry, Operation, Pattern, Permission, Resource
from moldau.testing import Cluster

pytestmark = pytest.mark.slow

SETTINGS = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config=SETTINGS) as running:
        yield running


class Cli:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115 (not a terminal: nothing is asked)

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            run(["acl", *words])
        out, err = self._capture.readouterr()
        assert ended.value.code == code, (out, err)
        assert "Traceback" not in err
        return out, err

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code)[0])


@pytest.fixture
def cli(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", cluster.bootstrap_servers)
    return Cli(monkeypatch, capsys)


def test_acls_are_added_listed_checked_and_removed(cli: Cli) -> None:
    out, _ = cli.run("add", "alice", "read", "describe-configs", "--topic", "orders")
    assert out.splitlines() == [
        "ALLOW READ on TOPIC orders for User:alice from host *: added",
        "ALLOW DESCRIBE_CONFIGS on TOPIC orders for User:alice from host *: added",
    ]
    cli.run("add", "User:bob", "all", "--topic", "ord", "--prefix", "--host", "10.0.0.7", "--deny")
    cli.run("add", "alice", "create", "--cluster")
    listed = cli.json("list")
    assert [(one["resource"], one["name"], one["operation"]) for one in listed] == [
        ("topic", "orders", "read"),
        ("topic", "orders", "describe_configs"),
        ("topic", "ord", "all"),
        ("cluster", "kafka-cluster", "create"),
    ]
    out, _ = cli.run("list", "--topic", "orders", "--principal", "bob")
    assert out.splitlines()[1].split() == ["topic", "ord", "(prefix)", "User:bob", "10.0.0.7", "deny", "all"]

    out, err = cli.run("check", "alice", "describe", "--topic", "orders")
    assert (
        "User:alice may describe the topic orders, from 127.0.0.1: the ACL ALLOW READ on TOPIC orders" in out
    )
    assert "super.users" in err
    out, _ = cli.run("check", "bob", "read", "--topic", "orders", "--host", "10.0.0.7", code=1)
    assert (
        "may not read the topic orders, from 10.0.0.7: the ACL DENY ALL on TOPIC with the prefix ord" in out
    )
    assert cli.json("check", "carol", "read", "--group", "g", code=1) == {
        "allowed": False,
        "rule": None,
        "reason": "the resource has no ACLs",
    }

    out, _ = cli.run("remove", "alice", "read", "--topic", "orders")
    assert out == "ALLOW READ on TOPIC orders for User:alice from host *: removed\n"
    assert len(cli.json("remove", "bob", "--topic", "ord", "--prefix")) == 1
    cli.run("check", "alice", "read", "--topic", "orders", code=1)
    _, err = cli.run("remove", "alice", "read", "--topic", "orders", code=4)
    assert "There is no such ACL for User:alice" in err


def test_what_cannot_be_is_said_before_anything_is_asked(cli: Cli) -> None:
    assert "No resource is named" in cli.run("add", "alice", "read", code=2)[1]
    assert "More than one" in cli.run("add", "alice", "read", "--topic", "t", "--group", "g", code=2)[1]
    assert "Nobody can write a group" in cli.run("add", "alice", "write", "--group", "g", code=2)[1]
    assert "'fly' is not one of all, read" in cli.run("add", "alice", "fly", "--topic", "t", code=2)[1]


def test_a_cluster_without_an_authorizer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster() as plain:
        monkeypatch.setenv("MOLDAU_BOOTSTRAP", plain.bootstrap_servers)
        cli = Cli(monkeypatch, capsys)
        assert "no authorizer" in cli.run("list", code=1)[1]
        assert "no authorizer" in cli.run("add", "alice", "read", "--topic", "t", code=1)[1]


def test_it_decides_with_the_brokers_own_code() -> None:
    acl = Acl(Resource.GROUP, Pattern.LITERAL, "*", Entry("User:*", "*", Operation.READ, Permission.ALLOW))
    made = decided([acl], "User:x", "1.2.3.4", Operation.DESCRIBE, Resource.GROUP, "any")
    assert made.is_allowed and made.rule == acl
    assert document(acl)["principal"] == "User:*"
