"""Decisions on client quotas: what AlterClientQuotas does and DescribeClientQuotas finds, with the checks and texts of
Kafka's ClientQuotaControlManager and ClientQuotasImage. Pure.

The quotas of an entity are one record (`security.quotas`). An entity that a request names twice is changed as it is
named first, and told that it is a duplicate, as in Kafka. Names of hosts are not looked up: an address is one of IP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import isnan
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import QUOTA_CHANGES_MAX, QUOTA_ENTITIES_MAX, QUOTA_NAME_LETTERS_MAX
from moldau.controller.slices import Portion, Slices
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.security.quotas import (
    CLIENT_ID,
    IP,
    IP_KEYS,
    USER,
    USER_KEYS,
    entity_key,
    entity_of,
    value_of,
    value_text,
)

TYPES = (USER, CLIENT_ID, IP)
MOST = {"SHORT": 2.0**15 - 1, "INT": 2.0**31 - 1, "LONG": 2.0**63 - 1}
FRACTION_MAX = 1e-6
MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2

Entity = Mapping[str, str | None]


class QuotaAlteration(NamedTuple):
    """What a request asks of one entity: values to set; None takes one away."""

    entity: Entity
    changes: Sequence[tuple[str, float | None]]
    is_whole: bool = True
    """Whether this is all that is asked of it: what is too long is not looked at to its end."""


class QuotaOutcome(NamedTuple):
    entity: Entity
    error: ErrorCode = ErrorCode.none
    message: str | None = None


class QuotaComponent(NamedTuple):
    """One type of a filter, and how it is to match."""

    type: str
    match_type: int
    match: str | None


class QuotaEntry(NamedTuple):
    entity: Entity
    values: Sequence[tuple[str, float]]


def decide_alter_quotas(
    image: ClusterImage, wanted: Sequence[QuotaAlteration]
) -> Slices[tuple[list[QuotaOutcome], list[ConfigChanged]]]:
    """What is said to each entity, once, and what changes."""
    known = image.configs_of(ResourceType.CLIENT_QUOTA)
    outcomes: dict[str, QuotaOutcome] = {}
    changed: dict[str, dict[str, str]] = {}
    count = len(known)
    portion = Portion()
    for entity, changes, is_whole in wanted:
        if portion.take(1 + len(changes)):
            yield
        key = entity_key(entity)
        try:
            if key in outcomes or len({name for name, _ in changes}) < len(changes):
                raise _refused(f"Ignoring duplicate entity {_java(entity)}")
            if not is_whole:
                raise _refused(f"More than {QUOTA_CHANGES_MAX} types or quotas of one entity were given.")
            values = _altered(entity, known.get(key, {}), changes)
            count += (key not in known) if values else -(key in known)
            if count > QUOTA_ENTITIES_MAX and key not in known:
                count -= 1
                raise _refused(
                    f"There are quotas of {QUOTA_ENTITIES_MAX} entities, which is as many as may be."
                )
            if values != known.get(key, {}):
                changed[key] = values
            outcomes[key] = QuotaOutcome(entity)
        except KafkaError as error:
            outcomes[key] = QuotaOutcome(entity, error.code, error.message)
    records = [
        ConfigChanged(ConfigResource(ResourceType.CLIENT_QUOTA, key), values)
        for key, values in changed.items()
    ]
    return list(outcomes.values()), records


def _altered(
    entity: Entity, before: Mapping[str, str], changes: Sequence[tuple[str, float | None]]
) -> dict[str, str]:
    keys = check_entity(entity)
    values = dict(before)
    for name, value in changes:
        if value is None:
            values.pop(name, None)
        else:
            check_value(keys, name, value)
            values[name] = value_text(value)
    return values


def check_entity(entity: Entity) -> Mapping[str, str]:
    """The keys that its quotas may have, with their types. KafkaError where it is none."""
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for type_, name in entity.items():
        if type_ not in TYPES:
            raise _refused(f"Unhandled client quota entity type: {type_}")
        if name == "":
            raise _refused(f"Empty {type_} not supported")
        if name is not None and len(name) > QUOTA_NAME_LETTERS_MAX:
            raise _refused(f"The name of a {type_} has more than {QUOTA_NAME_LETTERS_MAX} letters.")
    if IP not in entity:
        return USER_KEYS
    if len(entity) > 1:
        raise _refused(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    ip = entity[IP]
    if ip is not None and not _is_address(ip):
        raise _refused(f"{ip} is not a valid IP or resolvable host.")
    return IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_value(keys: Mapping[str, str], name: str, value: float) -> None:
    """KafkaError where an entity that may have quotas of these keys cannot have this one."""
    type_ = keys.get(name)
    if type_ is None:
        raise _refused(f"Invalid configuration key {name}")
    if value <= 0:
        raise _refused(f"Quota {name} must be greater than 0")
    if isnan(value):  # Kafka takes it where there may be fractions, and limits nothing then
        raise _refused(f"Quota {name} must be a number")
    if type_ in MOST:
        if not value <= MOST[type_]:
            article = "a" if type_ != "INT" else "an"
            raise _refused(f"Proposed value for {name} is too large for {article} {type_}.")
        if value % 1.0 > FRACTION_MAX:
            raise _refused(f"{name} cannot be a fractional value.")


def find_quotas(
    image: ClusterImage, components: Sequence[QuotaComponent], *, strict: bool
) -> Slices[list[QuotaEntry]]:
    """The entities that a filter means, with their quotas. KafkaError where it is none."""
    exact, specified = _checked_filter(components)
    found: list[QuotaEntry] = []
    portion = Portion()
    for key, values in list(image.configs_of(ResourceType.CLIENT_QUOTA).items()):
        if portion.take():
            yield
        entity = entity_of(key)
        if _fits(entity, exact, specified, strict):
            entries = [(name, value_of(text)) for name, text in sorted(values.items())]
            found.append(QuotaEntry(entity, entries))
    return found


def _checked_filter(components: Sequence[QuotaComponent]) -> tuple[dict[str, str | None], set[str]]:
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for type_, match_type, match in components:
        if not type_:
            raise _refused("Invalid empty entity type.")
        if type_ in exact or type_ in specified:
            raise _refused(f"Entity type {type_} cannot appear more than once in the filter.")
        if type_ not in TYPES:
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {type_}")
        if match_type == MATCH_EXACT:
            if match is None:
                raise _refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[type_] = match
        elif match_type == MATCH_DEFAULT:
            _check_no_match("MATCH_TYPE_DEFAULT", match)
            exact[type_] = None
        elif match_type == MATCH_SPECIFIED:
            _check_no_match("MATCH_TYPE_SPECIFIED", match)
            specified.add(type_)
        else:
            raise _refused(f"Unknown match type {match_type}")
    named = exact.keys() | specified
    if IP in named and len(named) > 1:
        raise _refused(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return exact, specified


def _check_no_match(match_type: str, match: str | None) -> None:
    if match is not None:
        raise _refused(f"Request specified {match_type}, but also specified a match string.")


def _fits(entity: Entity, exact: Entity, specified: set[str], strict: bool) -> bool:
    if strict and len(entity) != len(exact) + len(specified):
        return False
    if any(type_ not in entity for type_ in specified):
        return False
    return all(type_ in entity and entity[type_] == name for type_, name in exact.items())


def _java(entity: Entity) -> str:
    """As Kafka's ClientQuotaEntity prints itself."""
    parts = ", ".join(f"{type_}={'null' if name is None else name}" for type_, name in entity.items())
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
