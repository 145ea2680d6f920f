"""kio's message classes, read once into what the compilers of `wire.writer` and `wire.guard` need.

kio describes a message as a dataclass per struct and version. Here that becomes a flat tuple of
`FieldSpec`s in wire order. Classes are imported by API and version at first use: all of kio together costs
a second and 20 MB.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from moldau.wire.apis import APIS, is_known
from moldau.wire.primitives import WireError

Direction = Literal["request", "response"]

# Kafka's types of a fixed size, as struct has them. kio's times are integers of milliseconds on the wire.
FIXED: Final[dict[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field: a value or an array of values, of a primitive Kafka type or of a nested struct."""

    name: str
    kafka_type: str  # empty for structs
    struct: type[Any] | None
    is_array: bool
    nullable: bool  # the array, where it is one
    tag: int | None
    default: object  # MISSING where the schema has none


@cache
def message_class(direction: Direction, api_key: int, version: int) -> type[Any]:
    """kio's class of a request or response. WireError for what kio does not know."""
    if not is_known(api_key, version):
        raise WireError(f"no codec for API {api_key} version {version}")
    api = APIS[api_key]
    module = import_module(f"kio.schema.{api.module}.v{version}.{direction}")
    found: type[Any] = getattr(module, api.name + direction.capitalize())
    return found


def is_flexible(struct: type[Any]) -> bool:
    flexible: bool = struct.__flexible__
    return flexible


def plain_fields(struct: type[Any]) -> tuple[FieldSpec, ...]:
    """The fields that every message of this version carries, in wire order."""
    return tuple(spec for spec in field_specs(struct) if spec.tag is None)


def tagged_fields(struct: type[Any]) -> tuple[FieldSpec, ...]:
    """The tagged fields, by tag, as they are to be written."""
    return tuple(
        sorted((spec for spec in field_specs(struct) if spec.tag is not None), key=lambda spec: spec.tag or 0)
    )


def field_specs(struct: type[Any]) -> tuple[FieldSpec, ...]:
    return tuple(
        _field_spec(field.name, field.type, field.metadata, field.default) for field in fields(struct)
    )


def _field_spec(name: str, annotation: Any, metadata: Any, default: object) -> FieldSpec:
    annotation, nullable = _without_none(annotation)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])  # an absent UUID of an array is the zero UUID
    struct: type[Any] | None = (
        annotation if isinstance(annotation, type) and is_dataclass(annotation) else None
    )
    kafka_type = "" if struct else str(metadata["kafka_type"])
    return FieldSpec(name, kafka_type, struct, is_array, nullable, metadata.get("tag"), default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    parts = get_args(annotation)
    if NoneType not in parts:
        return annotation, False
    (inner,) = (part for part in parts if part is not NoneType)
    return inner, True


def implicit_default(spec: FieldSpec) -> object:
    """What a field that is left out stands for: the schema's default, else zero or empty."""
    if spec.default is not MISSING:
        return spec.default
    if spec.is_array:
        return ()
    if spec.struct:
        return Defaults(spec.struct)
    return {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": None}.get(spec.kafka_type, 0)


class Defaults:
    """A struct with every field at its default: a stand-in for an instance, for writing."""

    def __init__(self, struct: type[Any]) -> None:
        for spec in field_specs(struct):
            setattr(self, spec.name, implicit_default(spec))
