"""What a principal may do, by the cluster's ACLs: Kafka's StandardAuthorizer. Pure.

Who is one of `super.users` may do everything. For the others, of the ACLs that are for the resource, the principal, the
host and the operation, one that denies decides, else one that allows. Where there is none, it is denied; or, where
the resource has no ACLs at all, `allow.everyone.if.no.acl.found` decides.

Until the ACLs are known nobody but those of `super.users` may do anything.

A decision does not depend on how many ACLs there are (`acl_index`). It is remembered by principal, host and what is
asked, until an ACL changes: on the hot path a decision is a look-up. ACL_DECISIONS_MAX that allow are remembered, and
as many that deny; then all of that kind are forgotten. So who asks for what he may not, under ever new names, takes
nothing from those who may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from moldau.base.limits import ACL_DECISIONS_MAX, ACL_NAME_REMEMBERED_LETTERS_MAX, ACL_PATTERNS_PER_PAUSE
from moldau.runtime.line import Slices
from moldau.security.acl_index import AclIndex, Held, is_of_host
from moldau.security.acls import (
    EVERYONE,
    IMPLIES,
    WILDCARD,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    canonical_host,
    pattern_of,
)

_WHATEVER = "hardcode"
"""The name by which Kafka's Authorizer.authorizeByResourceType asks whether something may be done to any resource."""


Asked = tuple[str, str, Operation, Resource, str | None]


class Default(Enum):
    """Why something is decided where no ACL decides it."""

    SUPER_USER = "the principal is one of super.users"
    NO_ACL_ALLOWS = "the resource has no ACLs, and allow.everyone.if.no.acl.found is true"
    NO_ACL_DENIES = "the resource has no ACLs"
    NOT_ALLOWED = "no ACL allows it"
    NOT_KNOWN = "the ACLs are not known yet"


class Decision(NamedTuple):
    is_allowed: bool
    rule: Acl | Default

    def __str__(self) -> str:
        return self.rule.value if isinstance(self.rule, Default) else f"the ACL {self.rule}"


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, allows_without_acls: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.version = 0
        """Rises when an ACL changes."""
        self.knows_acls = False
        self._allows_without_acls = allows_without_acls
        self._acls = AclIndex()
        self._allowed: dict[Asked, None] = {}
        self._denied: dict[Asked, None] = {}

    @property
    def acl_count(self) -> int:
        return self._acls.count

    # ---- the cluster's ACLs -----------------------------------------------------------------------------------

    def changing(self, key: str, texts: Mapping[str, str]) -> Slices[None]:
        """The ACLs of one pattern are these now (`acls.resource_key`, `acls.text_of`)."""
        yield from self._acls.putting(pattern_of(key), texts)
        self._forget()

    def take_over(self, acls: Mapping[str, Mapping[str, str]]) -> Slices[None]:
        """These are all ACLs there are. Those of before count until the last of them is known."""
        index = AclIndex()
        for number, (key, texts) in enumerate(list(acls.items()), 1):
            if number % ACL_PATTERNS_PER_PAUSE == 0:
                yield
            yield from index.putting(pattern_of(key), texts)
        self._acls = index
        self.knows_acls = True
        self._forget()

    def _forget(self) -> None:
        self._allowed, self._denied = {}, {}
        self.version += 1

    def described(self, wanted: AclFilter) -> Slices[list[Acl]]:
        """The ACLs that a filter means."""
        found: list[Acl] = []
        for number, acl in enumerate(self._acls.all(wanted)):
            if number % ACL_PATTERNS_PER_PAUSE == 0:
                yield
            if acl is not None:
                found.append(acl)
        return found

    # ---- decisions --------------------------------------------------------------------------------------------

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        asked = principal, host, operation, resource, name
        if asked in self._allowed or principal in self.super_users:
            return True
        if asked in self._denied:
            return False
        return self._remember(asked, self.decide(principal, host, operation, resource, name).is_allowed)

    def allows_some(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether something may be done to some resource of a kind (Authorizer.authorizeByResourceType)."""
        asked = principal, host, operation, resource, None
        if asked in self._allowed or principal in self.super_users:
            return True
        if asked in self._denied:
            return False
        is_allowed = self.decide(
            principal, host, operation, resource, _WHATEVER
        ).is_allowed or self._has_undenied(principal, canonical_host(host), operation, resource)
        return self._remember(asked, is_allowed)

    def _remember(self, asked: Asked, is_allowed: bool) -> bool:
        name = asked[4]
        if name is None or len(name) <= ACL_NAME_REMEMBERED_LETTERS_MAX:
            known = self._allowed if is_allowed else self._denied
            if len(known) >= ACL_DECISIONS_MAX:
                known.clear()
            known[asked] = None
        return is_allowed

    def decide(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str
    ) -> Decision:
        """What is decided, and by which rule."""
        if principal in self.super_users:
            return Decision(True, Default.SUPER_USER)
        if not self.knows_acls:
            return Decision(False, Default.NOT_KNOWN)
        host = canonical_host(host)
        has_acls = False
        allowed: Acl | None = None
        for pattern, by_principal in self._acls.patterns_for(resource, name):
            has_acls = True
            for known in (principal, EVERYONE):
                for entry in by_principal.get(known, ()):
                    if not _is_for(entry, operation) or not is_of_host(entry.host, host):
                        continue
                    if entry.permission is Permission.DENY:
                        return Decision(False, Acl(*pattern, entry))
                    allowed = allowed or Acl(*pattern, entry)
        if allowed is not None:
            return Decision(True, allowed)
        if has_acls:
            return Decision(False, Default.NOT_ALLOWED)
        if self._allows_without_acls:
            return Decision(True, Default.NO_ACL_ALLOWS)
        return Decision(False, Default.NO_ACL_DENIES)

    def _has_undenied(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether an ACL allows something that no other denies as a whole. The first that does ends the search."""
        index = self._acls

        def held(permission: Permission, pattern: Pattern) -> list[Held]:
            return [
                (resource, pattern, known, named, permission)
                for known in dict.fromkeys((principal, EVERYONE))
                for named in dict.fromkeys((operation, Operation.ALL))
            ]

        denied = held(Permission.DENY, Pattern.LITERAL)
        denied_prefixes = held(Permission.DENY, Pattern.PREFIXED)
        literal = held(Permission.ALLOW, Pattern.LITERAL)

        def is_denied(name: str) -> bool:
            prefixes = (name[:length] for length in range(1, len(name) + 1))
            return any(index.has(one, prefix, host) for prefix in prefixes for one in denied_prefixes)

        if any(index.has(one, WILDCARD, host) for one in denied):
            return False
        if any(index.has(one, WILDCARD, host) for one in literal):
            return True
        for one in literal:
            for name in index.names(one, host):
                if not any(index.has(other, name, host) for other in denied) and not is_denied(name):
                    return True
        prefixed = held(Permission.ALLOW, Pattern.PREFIXED)
        return any(not is_denied(name) for one in prefixed for name in index.names(one, host))


def _is_for(entry: Entry, operation: Operation) -> bool:
    """Whether an ACL speaks of an operation. What it allows implies others, what it denies does not."""
    if entry.operation in (operation, Operation.ALL):
        return True
    implied = IMPLIES.get(operation)
    return implied is not None and entry.permission is Permission.ALLOW and entry.operation in implied
