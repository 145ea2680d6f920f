"""Answers against the schemas: what the writer takes by name must be there by that name, in every version."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterator, Sequence
from enum import IntEnum
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.dispatch import Route
from moldau.broker.handlers import ROUTES
from moldau.broker.kept_answers import Packed
from moldau.coordinator.reply import Reply
from moldau.wire.schema import FieldSpec, field_specs, message_class

TYPED = {
    "string": str,
    "bytes": bytes,
    "bool": bool,
    "float64": float,
    "uuid": UUID,
    "error_code": ErrorCode,
}
"""All other types of the schemas are integers here, times are milliseconds."""


def answer_of(route: Route) -> Any:
    """The one type that a handler answers with, whether at once, later, or through a coordinator's reply. `Packed` are
    the bytes of one that was made before."""
    (answer,) = set(answers_in(get_type_hints(route.handle)["return"])) - {Reply, Packed}
    return answer


def answers_in(hint: Any) -> Iterator[Any]:
    """Those that a handler returns, within what it makes them by."""
    for one in parts(hint):
        if get_origin(one) is Awaitable:
            yield from answers_in(get_args(one)[0])
        elif get_origin(one) is Generator:
            yield from answers_in(get_args(one)[2])
        else:
            yield one


def parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def fields_of(answer: Any) -> dict[str, Any]:
    """The fields of a class of answers and their types, those of `TopicResult[X]` with X in place."""
    plain = get_origin(answer) or answer
    assert issubclass(plain, tuple) and hasattr(plain, "_fields"), f"{answer} is no NamedTuple"
    (given,) = get_args(answer) or (None,)
    hints = get_type_hints(plain)
    return {name: substituted(hints[name], given) for name in plain._fields}


def substituted(hint: Any, given: Any) -> Any:
    if isinstance(hint, TypeVar):
        return given
    arguments = get_args(hint)
    if any(isinstance(one, TypeVar) for one in arguments):
        return get_origin(hint)[tuple(substituted(one, given) for one in arguments)]
    return hint


class Place(NamedTuple):
    """A struct of a schema, and the class that answers for it."""

    version: int
    path: str
    answer: Any
    specs: tuple[FieldSpec, ...]


def places(version: int, path: str, answer: Any, struct: type[Any]) -> Iterator[Place]:
    specs = field_specs(struct)
    yield Place(version, path, answer, specs)
    fields = fields_of(answer)
    for spec in specs:
        hint = fields.get(spec.name)
        if spec.struct and hint is not None and hint != tuple[()]:
            yield from places(version, f"{path}.{spec.name}", item_of(hint, spec), spec.struct)


def item_of(hint: Any, spec: FieldSpec) -> Any:
    (present,) = (one for one in parts(hint) if one is not NoneType)
    if not spec.is_array:
        return present
    assert get_origin(present) in (tuple, list, Sequence), f"{spec.name} is {present}, not an array"
    return get_args(present)[0]


def places_of(route: Route) -> list[Place]:
    """In all versions that are served."""
    answer = answer_of(route)
    return [
        place
        for version in range(route.min_version, route.max_version + 1)
        for place in places(
            version, f"{route.name} v{version}", answer, message_class("response", route.api_key, version)
        )
    ]


HANDLED = [route for route in ROUTES.values() if route.handle is not None]


@pytest.mark.parametrize("route", HANDLED, ids=lambda route: route.name)
def test_an_answer_has_every_field_of_every_version_that_is_served(route: Route) -> None:
    for place in places_of(route):
        missing = {spec.name for spec in place.specs} - fields_of(place.answer).keys()
        assert not missing, f"{place.path}: {place.answer} lacks {missing}"


@pytest.mark.parametrize("route", HANDLED, ids=lambda route: route.name)
def test_a_field_of_an_answer_has_the_type_of_the_schema(route: Route) -> None:
    for place in places_of(route):
        for spec in place.specs:
            if spec.struct is None:
                hint = item_of(fields_of(place.answer)[spec.name], spec)
                (present,) = (one for one in parts(hint) if one is not NoneType)
                wanted = TYPED.get(spec.kafka_type, int)
                is_code = wanted is int and issubclass(present, IntEnum)
                assert present is wanted or is_code, f"{place.path}: {spec.name} is {present}"


NULL_SINCE_VERSION = {
    ("TopicShown", "name"): 12,  # before, topics are not asked for by id
    ("DeletableTopicResult", "name"): 6,  # the same
    ("Joined", "protocol_name"): 7,  # `join_group.shaped` puts an empty text there
}


@pytest.mark.parametrize("route", HANDLED, ids=lambda route: route.name)
def test_a_field_that_may_be_null_in_an_answer_may_be_so_in_the_schema(route: Route) -> None:
    """A null that the version has no way to write would end the connection. An id that is null is all zeros."""
    for place in places_of(route):
        fields = fields_of(place.answer)
        for spec in place.specs:
            may_be_null = NoneType in parts(fields[spec.name]) and spec.kafka_type != "uuid"
            if place.version >= NULL_SINCE_VERSION.get((place.answer.__name__, spec.name), 0):
                assert spec.nullable or not may_be_null, f"{place.path}: {spec.name}"


SHARED = {
    "PartitionShown",  # Metadata shows less of a partition than DescribeTopicPartitions
    "TopicPartitions",  # heartbeats have no names of topics
    "ConfigEntry",  # CreateTopics has neither synonyms, types nor documentation
}


@pytest.mark.parametrize("route", HANDLED, ids=lambda route: route.name)
def test_an_answer_has_no_field_that_no_version_knows(route: Route) -> None:
    """Such a one would never be written: most likely it is misspelt."""
    known: dict[Any, set[str]] = {}
    for place in places_of(route):
        known.setdefault(place.answer, set()).update(spec.name for spec in place.specs)
    for answer, names in known.items():
        unknown = fields_of(answer).keys() - names
        assert not unknown or answer.__name__ in SHARED, f"{answer} has {unknown}"
