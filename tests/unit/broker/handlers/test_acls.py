"""ACLs without an authorizer and with one, through the codecs in all versions.

That every answer is Kafka's is the interop tests' part (`same_answers/scenarios/acls.py`, `test_rights.py`).
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.guard import Guard
from moldau.broker.handlers import create_acls, delete_acls, describe_acls
from moldau.security.authorizer import Authorizer
from moldau.wire.frames import WireError

from .admin_broker import AdminBroker, versions

ANY, LITERAL, ALLOW, TOPIC, UNKNOWN = 1, 3, 3, 2, 0

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
    "resource_name": "orders",
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": ANY,
    "permission_type": ALLOW,
}


@pytest.fixture
def broker() -> AdminBroker:
    return AdminBroker()


@pytest.mark.parametrize("version", versions(describe_acls))
def test_describing_acls_says_that_security_is_disabled(broker: AdminBroker, version: int) -> None:
    answer = broker.ask(describe_acls, version, **FILTER)
    assert (answer.error_code, answer.error_message, answer.resources) == (
        ErrorCode.security_disabled,
        "No Authorizer is configured on the broker",
        (),
    )


@pytest.mark.parametrize("version", versions(create_acls))
def test_each_acl_to_create_is_refused(broker: AdminBroker, version: int) -> None:
    acls = (SimpleNamespace(**ACL), SimpleNamespace(**ACL | {"resource_name": "payments"}))
    answer = broker.ask(create_acls, version, creations=acls)
    assert [(result.error_code, result.error_message) for result in answer.results] == [
        (ErrorCode.security_disabled, "No Authorizer is configured."),
    ] * 2


@pytest.mark.parametrize("version", versions(delete_acls))
def test_each_filter_to_delete_by_is_refused(broker: AdminBroker, version: int) -> None:
    answer = broker.ask(delete_acls, version, filters=(SimpleNamespace(**FILTER),) * 2)
    assert [(one.error_code, one.error_message, one.matching_acls) for one in answer.filter_results] == [
        (ErrorCode.security_disabled, "No Authorizer is configured.", ()),
    ] * 2


@pytest.mark.parametrize(
    "name", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
def test_a_filter_with_an_unknown_element_ends_the_connection(broker: AdminBroker, name: str) -> None:
    unknown = FILTER | {name: UNKNOWN}
    with pytest.raises(WireError):
        broker.ask(describe_acls, 3, **unknown)
    with pytest.raises(WireError):
        broker.ask(delete_acls, 3, filters=(SimpleNamespace(**FILTER), SimpleNamespace(**unknown)))


@pytest.mark.parametrize("name", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_acl_with_an_unknown_element_ends_the_connection(broker: AdminBroker, name: str) -> None:
    with pytest.raises(WireError):
        broker.ask(create_acls, 3, creations=(SimpleNamespace(**ACL | {name: UNKNOWN}),))


# With an authorizer


ADMIN = "User:admin"


@pytest.fixture
def guarded(broker: AdminBroker) -> AdminBroker:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    broker.guard = Guard(Authorizer([ADMIN]), clock)  # type: ignore[arg-type]
    follow(broker)
    return broker


def follow(broker: AdminBroker) -> None:
    assert broker.guard is not None
    asyncio.run(broker.guard.follow(None, broker.image, broker))  # type: ignore[arg-type]


def create(broker: AdminBroker, version: int, *changes: dict[str, Any]) -> list[tuple[int, str | None]]:
    acls = tuple(SimpleNamespace(**ACL | {"operation": 3} | change) for change in changes)
    answer = broker.ask(create_acls, version, principal=ADMIN, creations=acls)
    follow(broker)
    return [(int(one.error_code), one.error_message) for one in answer.results]


@pytest.mark.parametrize("version", versions(create_acls))
def test_acls_are_created_described_and_deleted(guarded: AdminBroker, version: int) -> None:
    assert create(guarded, version, {}, {"operation": 4}, {"resource_name": "payments"}) == [(0, None)] * 3
    everything = guarded.ask(
        describe_acls, version, principal=ADMIN, **FILTER | {"resource_type_filter": ANY}
    )
    shown = {
        (resource.resource_name, acl.principal, acl.host, acl.operation)
        for resource in everything.resources
        for acl in resource.acls
    }
    assert shown == {
        (name, "User:alice", "*", code) for name, code in (("orders", 3), ("orders", 4), ("payments", 3))
    }
    assert len(everything.resources) == 2 and everything.error_message is None
    wanted = SimpleNamespace(**FILTER | {"resource_name_filter": "orders", "operation": 3})
    nothing = SimpleNamespace(**FILTER | {"resource_name_filter": "nothing"})
    answer = guarded.ask(delete_acls, version, principal=ADMIN, filters=(wanted, nothing))
    (gone,) = answer.filter_results[0].matching_acls
    assert (gone.resource_name, gone.operation, gone.error_code) == ("orders", 3, ErrorCode.none)
    assert answer.filter_results[1].matching_acls == ()
    follow(guarded)
    left = guarded.ask(describe_acls, version, principal=ADMIN, **FILTER)
    assert sum(len(resource.acls) for resource in left.resources) == 2


def test_each_acl_that_cannot_be_has_its_own_error(guarded: AdminBroker) -> None:
    outcomes = create(guarded, 3, {"principal": "alice"}, {}, {"resource_type": 99}, {"resource_name": ""})
    invalid = int(ErrorCode.invalid_request)
    assert [code for code, _ in outcomes] == [invalid, 0, invalid, invalid]


def test_who_may_not_is_told_so_for_each_element(guarded: AdminBroker) -> None:
    denied = ErrorCode.cluster_authorization_failed
    acls = (SimpleNamespace(**ACL),) * 2
    assert [one.error_code for one in guarded.ask(create_acls, 3, creations=acls).results] == [denied] * 2
    filters = (SimpleNamespace(**FILTER),) * 2
    answer = guarded.ask(delete_acls, 3, filters=filters)
    assert [one.error_code for one in answer.filter_results] == [denied] * 2
    described = guarded.ask(describe_acls, 3, **FILTER)
    assert (described.error_code, described.resources) == (denied, ())


def test_a_filter_with_a_number_that_stands_for_nothing_finds_nothing(guarded: AdminBroker) -> None:
    create(guarded, 3, {})
    unknown = FILTER | {"operation": 99}
    assert guarded.ask(describe_acls, 3, principal=ADMIN, **unknown).resources == ()
    answer = guarded.ask(
        delete_acls, 3, principal=ADMIN, filters=(SimpleNamespace(**unknown), SimpleNamespace(**FILTER))
    )
    assert [one.error_code for one in answer.filter_results] == [ErrorCode.invalid_request, ErrorCode.none]
    assert len(answer.filter_results[1].matching_acls) == 1
