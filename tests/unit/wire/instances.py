"""Random instances of kio's message classes by seed: every type, nulls where allowed, tags present or not."""

from __future__ import annotations

import datetime
import random
import string
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from moldau.wire.schema import FieldSpec, field_specs, implicit_default

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_TEXT = string.ascii_letters + "äß€語🙂"


def instance(struct: type[Any], chance: random.Random) -> Any:
    return struct(**{spec.name: _field(spec, chance) for spec in field_specs(struct)})


def _field(spec: FieldSpec, chance: random.Random) -> Any:
    if spec.tag is not None and chance.random() < 0.4:
        return (
            instance_of_defaults(spec.struct) if spec.struct and not spec.is_array else implicit_default(spec)
        )
    if spec.nullable and chance.random() < 0.3:
        return None
    if spec.is_array:
        return tuple(_value(spec, chance) for _ in range(chance.choice((0, 1, 2, 3))))
    return _value(spec, chance)


def instance_of_defaults(struct: type[Any]) -> Any:
    return struct(**{spec.name: implicit_default(spec) for spec in field_specs(struct)})


def _value(spec: FieldSpec, chance: random.Random) -> Any:
    if spec.struct:
        return instance(spec.struct, chance)
    match spec.kafka_type:
        case "bool":
            return chance.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            limit = 1 << _BITS[spec.kafka_type]
            return chance.choice((0, -1, 1, limit - 1, -limit, chance.randrange(-limit, limit)))
        case "uint16":
            return chance.randrange(1 << 16)
        case "float64":
            return chance.uniform(-1e9, 1e9)
        case "string":
            return "".join(chance.choices(_TEXT, k=chance.choice((0, 1, 5, 40, 130))))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 20, 127, 128, 20_000)))
        case "uuid":
            return UUID(int=chance.getrandbits(128) | 1)
        case "error_code":
            return chance.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=chance.randrange(-(1 << 31), 1 << 31))
        case "datetime_i64":
            return _EPOCH + datetime.timedelta(milliseconds=chance.randrange(1 << 41))
    raise AssertionError(spec)
