"""The cluster's ACLs as decisions look for them: by the pattern's name, then by principal. Pure.

It follows the cluster image: `put` says what the ACLs of one pattern are now. Who asks about a name gets those that are
for it, however many there are in all: of the name itself, of `*`, and of each length of prefix that is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from moldau.base.limits import ACL_PATTERNS_PER_PAUSE
from moldau.runtime.line import Slices
from moldau.security.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    canonical_host,
    entry_of,
)

Entries = tuple[Entry, ...]
ByPrincipal = dict[str, Entries]
Held = tuple[Resource, Pattern, str, Operation, Permission]
"""What ACLs of one principal say, but for the names and hosts."""


class AclIndex:
    def __init__(self) -> None:
        self._patterns: dict[tuple[Resource, Pattern], dict[str, ByPrincipal]] = {
            (resource, pattern): {}
            for resource in Resource
            for pattern in (Pattern.LITERAL, Pattern.PREFIXED)
        }
        self._prefixes_of: dict[Resource, dict[int, int]] = {resource: {} for resource in Resource}
        """How many patterns there are of each length."""
        self._hosts: dict[Held, dict[str, tuple[str, ...]]] = {}
        """By name: from where."""
        self.count = 0

    def putting(self, pattern: ResourcePattern, texts: Collection[str]) -> Slices[None]:
        """The ACLs of a pattern are these now; none: there are none any more. Those of before count until the end."""
        found: dict[str, list[Entry]] = {}
        for number, text in enumerate(texts, 1):
            if number % ACL_PATTERNS_PER_PAUSE == 0:
                yield
            entry = entry_of(text)
            found.setdefault(entry.principal, []).append(entry)
        self._remove(pattern)
        if not found:
            return
        self._patterns[pattern.resource, pattern.pattern][pattern.name] = {
            principal: tuple(entries) for principal, entries in found.items()
        }
        for entries in found.values():
            for entry in entries:
                names = self._hosts.setdefault(_held(pattern, entry), {})
                names[pattern.name] = (*names.get(pattern.name, ()), entry.host)
        self.count += len(texts)
        if pattern.pattern is Pattern.PREFIXED:
            self._count_prefix(pattern, 1)

    def _remove(self, pattern: ResourcePattern) -> None:
        before = self._patterns[pattern.resource, pattern.pattern].pop(pattern.name, None)
        if before is None:
            return
        for entries in before.values():
            self.count -= len(entries)
            for entry in entries:
                held = _held(pattern, entry)
                names = self._hosts.get(held, {})
                names.pop(pattern.name, None)
                if not names:
                    self._hosts.pop(held, None)
        if pattern.pattern is Pattern.PREFIXED:
            self._count_prefix(pattern, -1)

    def _count_prefix(self, pattern: ResourcePattern, change: int) -> None:
        counts, length = self._prefixes_of[pattern.resource], len(pattern.name)
        counts[length] = counts.get(length, 0) + change
        if not counts[length]:
            del counts[length]

    def patterns_for(self, resource: Resource, name: str) -> Iterator[tuple[ResourcePattern, ByPrincipal]]:
        """The patterns that a resource falls under, each with its ACLs."""
        literal = self._patterns[resource, Pattern.LITERAL]
        for known in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            if (found := literal.get(known)) is not None:
                yield ResourcePattern(resource, Pattern.LITERAL, known), found
        prefixed = self._patterns[resource, Pattern.PREFIXED]
        for length in self._prefixes_of[resource]:
            prefix = name[:length]
            if length <= len(name) and (found := prefixed.get(prefix)) is not None:
                yield ResourcePattern(resource, Pattern.PREFIXED, prefix), found

    def names(self, held: Held, host: str) -> Iterator[str]:
        """The names that ACLs are for of those who come from a host, one after the other."""
        for name, hosts in self._hosts.get(held, {}).items():
            if any(is_of_host(known, host) for known in hosts):
                yield name

    def has(self, held: Held, name: str, host: str) -> bool:
        return any(is_of_host(known, host) for known in self._hosts.get(held, {}).get(name, ()))

    def all(self, wanted: AclFilter) -> Iterator[Acl | None]:
        """The ACLs that a filter means; None now and then, where whoever looks may pause."""
        for (resource, kind), names in self._patterns.items():
            for name, by_principal in list(names.items()):
                yield None
                if not wanted.fits_pattern(resource, kind, name):
                    continue
                for entries in by_principal.values():
                    for entry in entries:
                        if wanted.fits_entry(entry):
                            yield Acl(resource, kind, name, entry)


def _held(pattern: ResourcePattern, entry: Entry) -> Held:
    return pattern.resource, pattern.pattern, entry.principal, entry.operation, entry.permission


def is_of_host(known: str, host: str) -> bool:
    """Whether an ACL for a host is for who comes from this one, as `canonical_host` spells it."""
    return known in (WILDCARD, host) or (":" in known and canonical_host(known) == host)
