"""CreateAcls and DeleteAcls decide as Kafka does, and what they change is kept and told."""

from __future__ import annotations

import logging

import pytest

from moldau.base.errors import ErrorCode
from moldau.controller import acls as acls_module
from moldau.controller.acls import decide_create, decide_delete
from moldau.controller.slices import whole
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import ResourceType
from moldau.security.acls import Acl, AclFilter, Entry, Operation, Pattern, Permission, Resource
from moldau.store.memory import MemoryStore, Tree

from .test_controller import Node, run

READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
ORDERS = Acl(Resource.TOPIC, Pattern.LITERAL, "orders", READ)
PREFIX = Acl(Resource.GROUP, Pattern.PREFIXED, "app:", READ)


def with_acls(*acls: Acl) -> ClusterImage:
    image = ClusterImage("cluster")
    create(image, *acls)
    return image


def create(image: ClusterImage, *acls: Acl) -> list[str | None]:
    outcomes, records = whole(decide_create(image, acls))
    for record in records:
        image.apply(record)
    assert all(error is None or error.code is ErrorCode.invalid_request for error in outcomes)
    return [None if error is None else error.message for error in outcomes]


def delete(image: ClusterImage, *filters: AclFilter) -> list[list[Acl]]:
    outcomes, records = whole(decide_delete(image, filters))
    for record in records:
        image.apply(record)
    return outcomes


def kept(image: ClusterImage) -> set[Acl]:
    (found,), _ = whole(decide_delete(image, [AclFilter()]))
    return set(found)


@pytest.mark.parametrize(
    ("acl", "message"),
    [
        (
            ORDERS._replace(resource=Resource.CLUSTER),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (ORDERS._replace(name=""), "Invalid empty resource name"),
        (ORDERS._replace(resource=Resource.ANY), "Invalid resourceType ANY"),
        (ORDERS._replace(pattern=Pattern.ANY), "Invalid patternType ANY"),
        (ORDERS._replace(pattern=Pattern.MATCH), "Invalid patternType MATCH"),
        (ORDERS._replace(entry=READ._replace(operation=Operation.ANY)), "Invalid operation ANY"),
        (ORDERS._replace(entry=READ._replace(permission=Permission.ANY)), "Invalid permissionType ANY"),
        (
            ORDERS._replace(entry=READ._replace(principal="alice")),
            "Could not parse principal from `alice` "
            "(no colon is present separating the principal type from the principal name)",
        ),
        (ORDERS._replace(name="x" * 1001), "A name, principal or host has more than 1000 letters."),
    ],
)
def test_what_can_be_no_acl_is_refused_and_the_others_are_made(acl: Acl, message: str) -> None:
    image = ClusterImage("cluster")
    assert create(image, ORDERS, acl, PREFIX) == [None, message, None]
    assert kept(image) == {ORDERS, PREFIX}


def test_an_acl_that_is_there_is_well_and_changes_nothing() -> None:
    image = with_acls(ORDERS)
    assert create(image, ORDERS, ORDERS) == [None, None]
    assert whole(decide_create(image, [ORDERS]))[1] == []
    create(image, ORDERS._replace(entry=WRITE))
    assert kept(image) == {ORDERS, ORDERS._replace(entry=WRITE)}


def test_a_filter_removes_what_it_means_and_tells_it() -> None:
    image = with_acls(ORDERS, ORDERS._replace(entry=WRITE), PREFIX)
    assert delete(image, AclFilter(name="other"), AclFilter(operation=Operation.READ)) == [
        [],
        [ORDERS, PREFIX],
    ]
    assert kept(image) == {ORDERS._replace(entry=WRITE)}
    exact = AclFilter(Resource.TOPIC, Pattern.LITERAL, "orders")
    assert delete(image, exact, exact) == [[ORDERS._replace(entry=WRITE)]] * 2
    assert not image.configured(ResourceType.ACLS), "a pattern without ACLs is gone"


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls_module, "ACLS_MAX", 2)
    image = ClusterImage("cluster")
    third = ORDERS._replace(name="third")
    full = "There are 2 ACLs, which is as many as may be."
    assert create(image, ORDERS, PREFIX, third, ORDERS) == [None, None, full, None]
    delete(image, AclFilter(name="orders"))
    assert create(image, third) == [None]
    monkeypatch.setattr(acls_module, "ACLS_OF_PATTERN_BYTES_MAX", 100)
    monkeypatch.setattr(acls_module, "ACLS_MAX", 100)
    several = [ORDERS._replace(entry=READ._replace(host=f"10.0.0.{number}")) for number in range(4)]
    no_room = "There is no room for more ACLs of the resource orders."
    assert create(image, *several) == [None, None, no_room, no_room]


def test_they_are_there_after_a_restart_in_a_snapshot_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = Acl(
        Resource.GROUP, Pattern.LITERAL, "../a/b:\0 ä", READ._replace(principal='User:"x",ü', host="::1")
    )

    async def scene() -> None:
        tree = Tree()
        before = await Node.start(MemoryStore(tree))
        assert await before.controller.create_acls([ORDERS, odd, PREFIX]) == [None] * 3
        assert await before.controller.delete_acls([AclFilter(name="orders")]) == [[ORDERS]]
        after = await Node.start(MemoryStore(tree))
        assert kept(after.controller.image) == {odd, PREFIX}
        assert kept(image_from(snapshot_of(after.controller.image))) == {odd, PREFIX}

    with caplog.at_level(logging.INFO):
        run(scene())
    lines = [record.message for record in caplog.records if record.name == "moldau.controller.news"]
    assert lines[0] == "ACLs are changed: added ALLOW READ on TOPIC orders for User:alice from host *"
    assert lines[2] == (
        "ACLs are changed: added ALLOW READ on GROUP with the prefix app: for User:alice from host *"
    )
    assert lines[3] == "ACLs are changed: removed ALLOW READ on TOPIC orders for User:alice from host *"
    assert all(line.isprintable() for line in lines)
