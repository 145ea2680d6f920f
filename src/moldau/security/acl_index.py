"""The cluster's ACLs as decisions look for them: by the pattern's name, then by principal. Pure.

It follows the cluster image: `put` says what the ACLs of one pattern are now. Who asks about a name gets those that are
for it, however many there are in all: of the name itself, of `*`, and of each length of prefix that is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from moldau.security.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    Entry,
    Pattern,
    Resource,
    ResourcePattern,
    canonical_host,
    entry_of,
)

Entries = tuple[Entry, ...]
ByPrincipal = dict[str, Entries]


class AclIndex:
    def __init__(self) -> None:
        self._patterns: dict[tuple[Resource, Pattern], dict[str, ByPrincipal]] = {
            (resource, pattern): {}
            for resource in Resource
            for pattern in (Pattern.LITERAL, Pattern.PREFIXED)
        }
        self._prefixes_of: dict[Resource, dict[int, int]] = {resource: {} for resource in Resource}
        """How many patterns there are of each length."""
        self._of_principal: dict[tuple[Resource, str], dict[ResourcePattern, Entries]] = {}
        self.count = 0

    def put(self, pattern: ResourcePattern, texts: Collection[str]) -> None:
        """The ACLs of a pattern are these now; none: there are none any more."""
        self._remove(pattern)
        if not texts:
            return
        found: dict[str, list[Entry]] = {}
        for text in texts:
            entry = entry_of(text)
            found.setdefault(entry.principal, []).append(entry)
        by_principal = {principal: tuple(entries) for principal, entries in found.items()}
        self._patterns[pattern.resource, pattern.pattern][pattern.name] = by_principal
        for principal, entries in by_principal.items():
            self._of_principal.setdefault((pattern.resource, principal), {})[pattern] = entries
        self.count += len(texts)
        if pattern.pattern is Pattern.PREFIXED:
            self._count_prefix(pattern, 1)

    def _remove(self, pattern: ResourcePattern) -> None:
        before = self._patterns[pattern.resource, pattern.pattern].pop(pattern.name, None)
        if before is None:
            return
        for principal, entries in before.items():
            self.count -= len(entries)
            patterns = self._of_principal[pattern.resource, principal]
            del patterns[pattern]
            if not patterns:
                del self._of_principal[pattern.resource, principal]
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

    def of_principal(self, resource: Resource, principal: str) -> Iterator[tuple[ResourcePattern, Entry]]:
        """All that names this principal, of one kind of resource."""
        for pattern, entries in self._of_principal.get((resource, principal), {}).items():
            for entry in entries:
                yield pattern, entry

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


def is_of_host(entry: Entry, host: str) -> bool:
    """Whether an ACL is for who comes from a host, as `canonical_host` spells it."""
    return entry.host in (WILDCARD, host) or (":" in entry.host and canonical_host(entry.host) == host)
