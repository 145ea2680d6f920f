"""What an ACL says: who may, or may not, do what to which resources, with Kafka's words and numbers. Pure.

An ACL is for a resource by its name (LITERAL; the name `*` is every name), or for all whose names begin in the same way
(PREFIXED). It names one principal (`User:*` is everyone), one host (`*` is any) and one operation (ALL: every one).
Kafka's AclBinding, AclBindingFilter and their parts.

The cluster keeps the ACLs of one resource pattern together, as a `ConfigChanged` with ResourceType.ACLS: its name is
the pattern's `resource_key`, and each of its keys the text of an entry (`text_of`); there are no values.
"""

from __future__ import annotations

import json
from enum import IntEnum
from ipaddress import ip_address
from typing import NamedTuple

WILDCARD = "*"
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The one resource of its type."""


class _Code(IntEnum):
    """A number of Kafka's protocol, and its name. Hashed as the number: it is part of what decisions are kept by."""

    __hash__ = int.__hash__


class Resource(_Code):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(_Code):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Code):
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
OPERATIONS = {
    Resource.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
    ),
    Resource.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    Resource.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (_O.DESCRIBE,),
    Resource.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""What can be done to each kind of resource (Kafka's AclEntry)."""

IMPLIES = {
    _O.DESCRIBE: frozenset((_O.ALL, _O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.ALL, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
}
"""Who is allowed one of these operations is allowed the other. What is denied denies no more than it says."""


class Entry(NamedTuple):
    """Who may, or may not, do what."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """An entry, and the resources that it is for."""

    resource: Resource
    pattern: Pattern
    name: str
    entry: Entry

    def __str__(self) -> str:
        principal, host, operation, permission = self.entry
        prefix = " with the prefix" if self.pattern is Pattern.PREFIXED else ""
        return (
            f"{permission.name} {operation.name} on {self.resource.name}{prefix} {self.name} "
            f"for {principal} from host {host}"
        )


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and ANY leave it open. MATCH: all whose pattern fits the name."""

    resource: Resource = Resource.ANY
    pattern: Pattern = Pattern.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def fits_pattern(self, resource: Resource, pattern: Pattern, name: str) -> bool:
        if self.resource not in (Resource.ANY, resource):
            return False
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not Pattern.MATCH:
            return self.name == name
        if pattern is Pattern.LITERAL:
            return name in (self.name, WILDCARD)
        return self.name.startswith(name)

    def fits_entry(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def fits(self, acl: Acl) -> bool:
        return self.fits_pattern(acl.resource, acl.pattern, acl.name) and self.fits_entry(acl.entry)


class ResourcePattern(NamedTuple):
    resource: Resource
    pattern: Pattern
    name: str


def resource_key(pattern: ResourcePattern) -> str:
    """The name under which the cluster keeps a pattern's ACLs."""
    return f"{pattern.resource.name}:{pattern.pattern.name}:{pattern.name}"


def pattern_of(key: str) -> ResourcePattern:
    resource, pattern, name = key.split(":", 2)
    return ResourcePattern(Resource[resource], Pattern[pattern], name)


def text_of(entry: Entry) -> str:
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)


def entry_of(text: str) -> Entry:
    principal, host, operation, permission = json.loads(text)
    return Entry(principal, host, Operation(operation), Permission(permission))


def canonical_host(host: str) -> str:
    """One spelling for each address: IPv6 has many, and Java prints another than most. What is none stays."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def is_principal(text: str) -> bool:
    """Whether it has a type and a name, as `User:alice`."""
    return ":" in text
