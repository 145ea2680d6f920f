"""ACLs where no authorizer is configured, through the codecs in all versions.

That every answer is Kafka's is the interop tests' part (`same_answers/scenarios/acls.py`).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.handlers import create_acls, delete_acls, describe_acls
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
