"""What a broker's handlers ask before they do something: `may(broker, asker, right, name)`.

Without `authorizer.class.name` there is no guard, and everyone may do everything; a handler pays for one `is None`.
With it the guard follows the ACLs in the cluster image, and denies everything but to `super.users` until it knows them.
What is denied is counted and, at most every so often, said in a log of its own (`moldau.authorizer`), in the words of
Kafka's StandardAuthorizer.

Who asks is a connection, or the context of a request: of one that another broker has forwarded (Envelope), who sent it
there. The rights are those of the table in `security.rights`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from moldau.base.limits import DENIAL_LETTERS_MAX, DENIALS_SAID_MAX
from moldau.broker.seldom import SeldomOfEach
from moldau.config.authorization_keys import principals
from moldau.config.broker import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, Record, ResourceType
from moldau.replication.fetch_session import TopicRef
from moldau.runtime.line import Slices
from moldau.runtime.ports import Clock, Tasks
from moldau.security.acls import CLUSTER_NAME, OPERATIONS, Acl, AclFilter, Pattern, Resource
from moldau.security.authorizer import Authorizer
from moldau.security.rights import Right

log = logging.getLogger("moldau.authorizer")

SAID_EVERY_S = 10.0

_RESOURCE_NAMES = {
    Resource.TOPIC: "Topic",
    Resource.GROUP: "Group",
    Resource.CLUSTER: "Cluster",
    Resource.TRANSACTIONAL_ID: "TransactionalId",
    Resource.DELEGATION_TOKEN: "DelegationToken",
    Resource.USER: "User",
}


class Asker(Protocol):
    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...


class Guard:
    """The authorizer of a broker, as requests meet it."""

    def __init__(self, authorizer: Authorizer, clock: Clock) -> None:
        self.authorizer = authorizer
        self.denials = 0
        self._is_said = SeldomOfEach(clock, SAID_EVERY_S, DENIALS_SAID_MAX)

    # ---- the cluster's ACLs -----------------------------------------------------------------------------------

    async def follow(self, records: Iterable[Record] | None, image: ClusterImage, tasks: Tasks) -> None:
        """The image has changed, by these records or (None) as a whole."""
        changing = self.authorizer.take_over(image.configs_of(ResourceType.ACLS))
        for _ in changing if records is None else self._changing(records):
            await tasks.sleep(0)

    def _changing(self, records: Iterable[Record]) -> Slices[None]:
        for record in records:
            if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.ACLS:
                yield from self.authorizer.changing(record.resource.name, record.configs)
                yield

    def described(self, wanted: AclFilter) -> Slices[list[Acl]]:
        return self.authorizer.described(wanted)

    @property
    def version(self) -> int:
        """Another one whenever something may be decided in another way."""
        return self.authorizer.version

    # ---- decisions --------------------------------------------------------------------------------------------

    def allows(self, asker: Asker, right: Right, name: str) -> bool:
        _, operation, resource, _, _ = right
        if self.authorizer.allows(asker.principal, asker.client_host, operation, resource, name):
            return True
        self._deny(asker, right, name)
        return False

    def allows_quietly(self, asker: Asker, right: Right, name: str) -> bool:
        """A denial is nothing to speak of: something else is asked then, or left out."""
        _, operation, resource, _, _ = right
        return self.authorizer.allows(asker.principal, asker.client_host, operation, resource, name)

    def allows_some(self, asker: Asker, right: Right) -> bool:
        """Of any name at all."""
        _, operation, resource, _, _ = right
        if self.authorizer.allows_some(asker.principal, asker.client_host, operation, resource):
            return True
        self._deny(asker, right, "*")
        return False

    def operations(self, asker: Asker, resource: Resource, name: str) -> int:
        """All that may be done to it, as bits (KIP-430)."""
        allows = self.authorizer.allows
        principal, host = asker.principal, asker.client_host
        return sum(
            1 << operation
            for operation in OPERATIONS[resource]
            if allows(principal, host, operation, resource, name)
        )

    def _deny(self, asker: Asker, right: Right, name: str) -> None:
        self.denials += 1
        api, operation, resource, _, _ = right
        principal, host = asker.principal, asker.client_host
        shown = _printable(name)
        if self._is_said((principal, host), (principal, api, operation, resource, shown)):
            decision = self.authorizer.decide(principal, host, operation, resource, name)
            log.info(
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s:%s for request = %s "
                "with resourceRefCount = 1 based on rule %s",
                _printable(principal),
                operation.name,
                host,
                _RESOURCE_NAMES[resource],
                Pattern.LITERAL.name,
                shown,
                api,
                _printable(str(decision)),
            )


def _printable(text: str) -> str:
    """Names come from strangers: neither a line of its own, nor a long one."""
    shown = text[:DENIAL_LETTERS_MAX].encode("unicode_escape").decode()
    return shown if len(text) <= DENIAL_LETTERS_MAX else f"{shown}..."


class Guarded(Protocol):
    """A broker, as far as it has a guard or not."""

    @property
    def guard(self) -> Guard | None: ...


def may(broker: Guarded, asker: Asker, right: Right, name: str = CLUSTER_NAME) -> bool:
    guard = broker.guard
    return guard is None or guard.allows(asker, right, name)


def may_quietly(broker: Guarded, asker: Asker, right: Right, name: str = CLUSTER_NAME) -> bool:
    """Where a denial is nothing to speak of: something else is asked then, or left out."""
    guard = broker.guard
    return guard is None or guard.allows_quietly(asker, right, name)


def may_some(broker: Guarded, asker: Asker, right: Right) -> bool:
    """Of any name at all."""
    guard = broker.guard
    return guard is None or guard.allows_some(asker, right)


def operations(broker: Guarded, asker: Asker, resource: Resource, name: str = CLUSTER_NAME) -> int:
    """All that may be done to it, as bits (KIP-430)."""
    guard = broker.guard
    if guard is None:
        return EVERYTHING[resource]
    return guard.operations(asker, resource, name)


EVERYTHING = {resource: sum(1 << operation for operation in known) for resource, known in OPERATIONS.items()}


def name_of(image: ClusterImage, topic: TopicRef) -> str | None:
    """By the topic's name or the bytes of its id; None where the id is unknown, and there is nothing to ask about."""
    if isinstance(topic, str):
        return topic
    found = image.topic_by_id.get(UUID(bytes=topic))
    return None if found is None else found.name


def guard_of(config: BrokerConfig, clock: Clock) -> Guard | None:
    """None where no authorizer is configured."""
    if not config["authorizer.class.name"]:
        return None
    super_users = principals(config["super.users"])
    allows_without_acls: bool = config["allow.everyone.if.no.acl.found"]
    return Guard(Authorizer(super_users, allows_without_acls=allows_without_acls), clock)
