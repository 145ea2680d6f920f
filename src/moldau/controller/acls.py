"""Decisions on ACLs: what CreateAcls and DeleteAcls do, with the checks and texts of Kafka's AclApis and
AclControlManager. Pure.

The ACLs of one resource pattern are one record (`security.acls`); each is one key of it, so that none is there twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import ACL_LETTERS_MAX, ACLS_MAX, ACLS_OF_PATTERN_BYTES_MAX
from moldau.controller.slices import Portion, Slices
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    entry_of,
    is_principal,
    pattern_of,
    resource_key,
    text_of,
)

ENTRY_BYTES = 4
"""An empty value, and what is between."""

Changed = dict[str, dict[str, str]]
"""The ACLs of patterns as they are to be, by the pattern's key."""


def decide_create(
    image: ClusterImage, wanted: Sequence[Acl]
) -> Slices[tuple[list[KafkaError | None], list[ConfigChanged]]]:
    """What is said to each, and what changes. One that is there already is well."""
    known = image.configs_of(ResourceType.ACLS)
    room = ACLS_MAX - sum(map(len, known.values()))
    sizes: dict[str, int] = {}
    changed: Changed = {}
    outcomes: list[KafkaError | None] = []
    portion = Portion()
    for acl in wanted:
        if portion.take():
            yield
        try:
            check_new(acl)
            key, text = resource_key(ResourcePattern(*acl[:3])), text_of(acl.entry)
            texts = changed.get(key, known.get(key, {}))
            if text not in texts:
                size = sizes.get(key) or sum(map(_size, texts))
                if room == 0:
                    raise _refused(f"There are {ACLS_MAX} ACLs, which is as many as may be.")
                if size + _size(text) > ACLS_OF_PATTERN_BYTES_MAX:
                    raise _refused(f"There is no room for more ACLs of the resource {acl.name}.")
                changed.setdefault(key, dict(texts))[text] = ""
                sizes[key] = size + _size(text)
                room -= 1
            outcomes.append(None)
        except KafkaError as error:
            outcomes.append(error)
    return outcomes, _records(changed)


def decide_delete(
    image: ClusterImage, filters: Sequence[AclFilter]
) -> Slices[tuple[list[list[Acl]], list[ConfigChanged]]]:
    """The ACLs that each filter means, and what changes."""
    known = image.configs_of(ResourceType.ACLS)
    changed: Changed = {}
    outcomes: list[list[Acl]] = []
    portion = Portion()
    for wanted in filters:
        matching: list[Acl] = []
        for key, pattern in _patterns(known, wanted):
            if portion.take():
                yield
            if not wanted.fits_pattern(*pattern):
                continue
            for text in known[key]:
                entry = entry_of(text)
                if portion.take():
                    yield
                if wanted.fits_entry(entry):
                    matching.append(Acl(*pattern, entry))
                    changed.setdefault(key, dict(known[key])).pop(text, None)
        outcomes.append(matching)
    return outcomes, _records(changed)


def _patterns(
    known: Mapping[str, Mapping[str, str]], wanted: AclFilter
) -> Iterator[tuple[str, ResourcePattern]]:
    """Those that a filter may mean: all, or the one that it names."""
    is_exact = wanted.resource is not Resource.ANY and wanted.pattern in (Pattern.LITERAL, Pattern.PREFIXED)
    if is_exact and wanted.name is not None:
        pattern = ResourcePattern(wanted.resource, wanted.pattern, wanted.name)
        if (key := resource_key(pattern)) in known:
            yield key, pattern
        return
    for key in known:
        yield key, pattern_of(key)


def check_new(acl: Acl) -> None:
    """KafkaError where there can be no such ACL."""
    resource, pattern, name, (principal, host, operation, permission) = acl
    if resource is Resource.CLUSTER and name != CLUSTER_NAME:
        raise _refused(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _refused("Invalid empty resource name")
    if resource is Resource.ANY:
        raise _refused(f"Invalid resourceType {resource.name}")
    if pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise _refused(f"Invalid patternType {pattern.name}")
    if operation is Operation.ANY:
        raise _refused(f"Invalid operation {operation.name}")
    if permission is Permission.ANY:
        raise _refused(f"Invalid permissionType {permission.name}")
    if not is_principal(principal):
        raise _refused(
            f"Could not parse principal from `{principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if max(len(name), len(principal), len(host)) > ACL_LETTERS_MAX:
        raise _refused(f"A name, principal or host has more than {ACL_LETTERS_MAX} letters.")


def _size(text: str) -> int:
    """In the store."""
    return len(json.dumps(text)) + ENTRY_BYTES


def _records(changed: Changed) -> list[ConfigChanged]:
    return [ConfigChanged(ConfigResource(ResourceType.ACLS, key), texts) for key, texts in changed.items()]


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
