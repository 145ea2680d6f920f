"""Kafka's own tool for ACLs, on a Moldau broker: what it adds is in force, and what it lists is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.apache_kafka import Distribution
from bench.server import MoldauServer
from moldau.config.authorization_keys import AUTHORIZERS

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-acl-tool")]

TOOL = "org.apache.kafka.tools.AclCommand"
SETTINGS = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS"}


def test_acls_are_added_listed_and_removed(requires_kafka: Distribution, tmp_path: Path) -> None:
    with MoldauServer(tmp_path / "moldau", SETTINGS) as broker:

        def acls(*words: str) -> str:
            return requires_kafka.run(TOOL, "--bootstrap-server", broker.bootstrap_servers, *words).stdout

        resources = ("--topic", "orders", "--resource-pattern-type", "prefixed")
        added = acls("--add", "--allow-principal", "User:alice", "--producer", *resources)
        assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=PREFIXED)" in added
        listed = acls("--list", "--topic", "orders-2026", "--resource-pattern-type", "match")
        for operation in ("WRITE", "DESCRIBE", "CREATE"):
            assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
        acls("--remove", "--force", "--allow-principal", "User:alice", "--producer", *resources)
        assert "alice" not in acls("--list")
