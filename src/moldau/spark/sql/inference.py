"""What a topic's records look like, from some of them: JSON objects and their fields, text, or bytes.

Pure: bytes come in, a `Shape` goes out. It holds for the records that were looked at; one that does not fit it later
is a corrupt row, and a declared table says better what is meant.

    whole numbers                        BIGINT; DOUBLE where one has decimals, or more than 64 bits
    text in ISO 8601 with date and time  TIMESTAMP, where all of it is
    objects and arrays                   STRUCT and ARRAY
    no value at all, or several types    STRING, in a shape that is not `exact`: Arrow's strict parser would refuse
                                         such records, and Spark's gives their text
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_LONG_MAX = 2**63
DEPTH_MAX = 32
"""Of objects within objects; what lies deeper is text."""


class Format(Enum):
    JSON = "json"
    STRING = "string"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Shape:
    format: Format
    fields: tuple[tuple[str, str], ...] = ()
    """Of JSON: names and Spark's types, in the order in which they were seen."""
    exact: bool = True
    """Whether every field has one known type."""
    text_keys: bool = True
    sampled: int = 0
    """Records that have a value."""
    corrupt: int = 0
    """Of those, the ones that are no JSON objects in a topic of JSON."""


class _Unknown:
    """Nothing but nulls so far."""


class _Mixed:
    """Several types that have no common one."""


@dataclass(slots=True)
class _Struct:
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _List:
    of: Any


UNKNOWN, MIXED = _Unknown(), _Mixed()


def infer(values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> Shape:
    """The shape of the records with these values and keys. Without any value it is text."""
    present = [value for value in values if value is not None]
    text_keys = all(key is None or is_text(key) for key in keys)
    objects = [found for value in present if (found := json_object(value)) is not None]
    if present and len(objects) * 2 >= len(present):
        merged: Any = UNKNOWN
        for found in objects:
            merged = merge(merged, type_of(found))
        fields, exact = named_fields(merged)
        corrupt = len(present) - len(objects)
        return Shape(Format.JSON, fields, exact, text_keys, len(present), corrupt)
    kind = Format.STRING if all(map(is_text, present)) else Format.BINARY
    return Shape(kind, text_keys=text_keys, sampled=len(present))


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def type_of(value: Any, depth: int = 0) -> Any:
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_LONG_MAX <= value < _LONG_MAX else "DOUBLE"
        case float():
            return "DOUBLE"
        case str():
            return "TIMESTAMP" if _TIMESTAMP.fullmatch(value) else "STRING"
    if depth >= DEPTH_MAX:
        return MIXED
    if isinstance(value, dict):
        return _Struct({name: type_of(one, depth + 1) for name, one in value.items()})
    return _List(merged_all(type_of(one, depth + 1) for one in value))


def merged_all(types: Iterable[Any]) -> Any:
    result: Any = UNKNOWN
    for one in types:
        result = merge(result, one)
    return result


def merge(one: Any, other: Any) -> Any:
    """The type of a field that has been of both."""
    if one is UNKNOWN or one == other:
        return other
    if other is UNKNOWN:
        return one
    match one, other:
        case _Struct(first), _Struct(second):
            names = [*first, *(name for name in second if name not in first)]
            return _Struct(
                {name: merge(first.get(name, UNKNOWN), second.get(name, UNKNOWN)) for name in names}
            )
        case _List(first), _List(second):
            return _List(merge(first, second))
        case ("BIGINT", "DOUBLE") | ("DOUBLE", "BIGINT"):
            return "DOUBLE"
        case ("TIMESTAMP", "STRING") | ("STRING", "TIMESTAMP"):
            return "STRING"
    return MIXED


def named_fields(merged: Any) -> tuple[tuple[tuple[str, str], ...], bool]:
    """A struct's fields as Spark's types, and whether all of them are known.

    Spark does not tell names apart by case: of such a pair the first is a column.
    """
    exact = True
    fields: dict[str, tuple[str, str]] = {}
    if isinstance(merged, _Struct):
        for name, kind in merged.fields.items():
            text, known = as_text(kind)
            if name and name.casefold() not in fields:
                fields[name.casefold()] = name, text
                exact = exact and known
    return tuple(fields.values()), exact


def as_text(kind: Any) -> tuple[str, bool]:
    """A type in Spark's words, and whether it is known."""
    match kind:
        case str():
            return kind, True
        case _List(of):
            text, known = as_text(of)
            return f"ARRAY<{text}>", known
        case _Struct():
            fields, known = named_fields(kind)
            if not fields:
                return "STRING", False
            return f"STRUCT<{', '.join(f'{quoted(name)}: {text}' for name, text in fields)}>", known
    return "STRING", False


def quoted(name: str) -> str:
    """A name that Spark takes whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
