"""The guard of a broker: it follows the image, counts what it denies, and says so within bounds."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from moldau.base.limits import DENIAL_LETTERS_MAX, DENIALS_SAID_MAX, SAID_LATELY_MAX
from moldau.broker.guard import (
    EVERYTHING,
    SAID_EVERY_S,
    Guard,
    guard_of,
    may,
    may_quietly,
    may_some,
    operations,
)
from moldau.config import authorization_keys
from moldau.config.broker import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.security.acls import (
    Acl,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    resource_key,
    text_of,
)
from moldau.security.authorizer import Authorizer
from moldau.security.rights import right

READ = right("OffsetCommit", Operation.READ, Resource.TOPIC)
WRITE_SOME = right("InitProducerId", Operation.WRITE, Resource.TOPIC)
ALICE = SimpleNamespace(principal="User:alice", client_host="10.0.0.9")


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Tasks:
    pauses = 0

    async def sleep(self, _delay_s: float) -> None:
        self.pauses += 1


def changed(*acls: Acl) -> ConfigChanged:
    """The record of all ACLs of one pattern."""
    (key,) = {resource_key(ResourcePattern(*acl[:3])) for acl in acls}
    return ConfigChanged(ConfigResource(ResourceType.ACLS, key), {text_of(acl.entry): "" for acl in acls})


def allow(operation: Operation, name: str, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(Resource.TOPIC, Pattern.LITERAL, name, Entry("User:alice", "*", operation, permission))


def guard(*acls: Acl, clock: Clock | None = None) -> Guard:
    made = Guard(Authorizer(["User:admin"]), clock or Clock())  # type: ignore[arg-type]
    image = ClusterImage("c")
    for acl in acls:
        image.apply(changed(acl))
    follow(made, None, image)
    return made


def follow(made: Guard, records: list[ConfigChanged] | None, image: ClusterImage) -> None:
    asyncio.run(made.follow(records, image, Tasks()))  # type: ignore[arg-type]


def test_it_follows_deltas_and_whole_images() -> None:
    made = guard(allow(Operation.READ, "orders"))
    assert made.allows(ALICE, READ, "orders") and not made.allows(ALICE, READ, "more")
    version, image = made.version, ClusterImage("c")
    other = ConfigChanged(ConfigResource(ResourceType.BROKER, ""), {"a": "b"})
    follow(made, [other, changed(allow(Operation.READ, "more"))], image)
    assert made.allows(ALICE, READ, "more") and made.version > version
    follow(made, None, image)
    assert not made.allows(ALICE, READ, "orders") and not made.allows(ALICE, READ, "more")


def test_before_it_knows_the_acls_it_denies_everything_but_to_super_users() -> None:
    made = Guard(Authorizer(["User:admin"], allows_without_acls=True), Clock())  # type: ignore[arg-type]
    assert not made.allows(ALICE, READ, "orders")
    assert made.allows(SimpleNamespace(principal="User:admin", client_host="h"), READ, "orders")
    assert made.operations(ALICE, Resource.TOPIC, "orders") == 0


def test_without_a_guard_everyone_may_do_everything() -> None:
    broker = SimpleNamespace(guard=None)
    assert may(broker, ALICE, READ, "t") and may_quietly(broker, ALICE, READ, "t")
    assert may_some(broker, ALICE, WRITE_SOME)
    assert operations(broker, ALICE, Resource.CLUSTER) == EVERYTHING[Resource.CLUSTER]


def test_the_operations_that_are_told_are_those_that_are_allowed() -> None:
    broker = SimpleNamespace(guard=guard(allow(Operation.WRITE, "orders")))
    assert (
        operations(broker, ALICE, Resource.TOPIC, "orders") == 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    )
    assert broker.guard.denials == 0, "who asks what he may do is denied nothing"


def test_a_denial_is_counted_and_said_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    made = guard(allow(Operation.READ, "orders", Permission.DENY))
    with caplog.at_level(logging.INFO, "moldau.authorizer"):
        assert not made.allows(ALICE, READ, "orders") and not made.allows(ALICE, READ, "orders")
        assert not made.allows_quietly(ALICE, READ, "orders")
    assert made.denials == 2
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.9 on resource = Topic:LITERAL:orders "
        "for request = OffsetCommit with resourceRefCount = 1 based on rule the ACL DENY READ on TOPIC orders for "
        "User:alice from host *"
    ]


def test_denials_neither_fill_the_log_nor_begin_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    made = guard(clock=clock)
    with caplog.at_level(logging.INFO, "moldau.authorizer"):
        made.allows(ALICE, READ, "a\nPrincipal = User:admin is Allowed")
        made.allows(ALICE, READ, "x" * 10_000)
        for number in range(2 * SAID_LATELY_MAX):
            made.allows(ALICE, READ, f"t{number}")
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == DENIALS_SAID_MAX and made.denials == 2 * SAID_LATELY_MAX + 2
        for number in range(2 * SAID_LATELY_MAX):
            made.allows(SimpleNamespace(principal=f"User:{number}", client_host="h"), READ, "orders")
        assert len(caplog.records) == SAID_LATELY_MAX, (
            "of all, and who came later was not hidden by the first"
        )
        clock.now_s += SAID_EVERY_S
        made.allows(ALICE, READ, "orders")
        assert len(caplog.records) == SAID_LATELY_MAX + 1
    assert not any("\n" in text for text in texts)
    assert max(map(len, texts)) < DENIAL_LETTERS_MAX + 300


def test_a_guard_is_made_of_the_settings() -> None:
    config = BrokerConfig.parse(
        {
            "authorizer.class.name": authorization_keys.AUTHORIZERS[0],
            "super.users": "User:CN=a,O=b; User:admin ;",
        }
    )
    made = guard_of(config, Clock())  # type: ignore[arg-type]
    assert made is not None
    assert made.authorizer.super_users == {"User:CN=a,O=b", "User:admin"}
    assert guard_of(BrokerConfig.parse({}), Clock()) is None  # type: ignore[arg-type]
