"""ACLs on a cluster without an authorizer."""

from __future__ import annotations

from typing import Any

from ..conversation import Conversation, scenario

ANY, LITERAL, ALLOW, TOPIC = 1, 3, 3, 2
CODES = {"unknown": 0, "any": ANY, "too large": 99, "negative": -1}

FILTER = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
ACL = {
    "resource_type": TOPIC,
    "resource_name": "there",
    "resource_pattern_type": LITERAL,
    "principal": "User:someone",
    "host": "*",
    "operation": 3,
    "permission_type": ALLOW,
}


def variants(good: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same with each of its codes changed in turn."""
    changed = {
        f"{name} {how}": good | {name: code}
        for name, value in good.items()
        if isinstance(value, int)
        for how, code in CODES.items()
    }
    return {"good": good} | changed


@scenario("DescribeAcls", "no authorizer")
def describe_acls(talk: Conversation) -> None:
    for case, values in variants(FILTER).items():
        talk.ask(case, values)
    talk.ask(
        "an empty name", FILTER | {"resource_name_filter": "", "principal_filter": "", "host_filter": ""}
    )


@scenario("CreateAcls", "no authorizer")
def create_acls(talk: Conversation) -> None:
    for case, acl in variants(ACL).items():
        talk.ask(case, {"creations": [acl]})
        talk.ask(f"{case}, beside a good one", {"creations": [ACL, acl]})
    talk.ask("none", {"creations": []})
    talk.ask("nonsense", {"creations": [ACL | {"resource_name": "", "principal": "nobody", "host": ""}]})


@scenario("DeleteAcls", "no authorizer")
def delete_acls(talk: Conversation) -> None:
    for case, values in variants(FILTER).items():
        talk.ask(case, {"filters": [values]})
        talk.ask(f"{case}, beside a good one", {"filters": [FILTER, values]})
    talk.ask("none", {"filters": []})
