"""Readers for messages that may be large: kio's native ones, called element by element with pauses between.

kio makes all objects of a message in one go: for 100,000 elements that is 15 to 40 ms and 50 MB, in which nobody else
is served. `sliced_reader(struct)` makes a generator function `(view, position) -> (message, position after it)` that
gives the same message and pauses in every long array of structs, texts, bytes or UUIDs. Arrays of numbers, and short
ones, are read by kio in one go.

A guard (`wire.guard`) has walked over the message before, and unknown tagged fields are cut out: lengths are not
checked again here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, NamedTuple

from kio._kio_native import get_field_reader, get_reader
from kio.serial import entity_reader
from kio.serial.readers import (
    read_compact_array_length,
    read_int8,
    read_legacy_array_length,
    read_unsigned_varint,
)

from moldau.runtime.line import Slices
from moldau.wire.schema import FIXED, FieldSpec, is_flexible, plain_fields, tagged_fields

Native = Callable[[memoryview, int], tuple[Any, int]]
"""kio's readers: the value, and how many bytes it takes."""
SlicedReader = Callable[[memoryview, int], Slices[tuple[Any, int]]]
"""The value, and the position after it."""

_FEW: Final = 64
"""So many elements are read in one go, and between two pauses: some 50 us."""


class _Step(NamedTuple):
    """A field of a struct, in the order of the wire."""

    name: str
    native: Native
    in_slices: SlicedReader | None
    """Where it may be large."""
    length: Native | None
    """Where it is large by its length alone."""


def sliced_reader(struct: type[Any]) -> SlicedReader:
    steps = [_step(struct, spec) for spec in plain_fields(struct)]
    tags = {spec.tag: (spec.name, _native_field(struct, spec)) for spec in tagged_fields(struct)}
    absent = {spec.name: spec.default for spec in tagged_fields(struct)}
    flexible = is_flexible(struct)

    def read(view: memoryview, position: int) -> Slices[tuple[Any, int]]:
        values = dict(absent)
        for name, native, in_slices, length in steps:
            if in_slices is None or (length is not None and (length(view, position)[0] or 0) <= _FEW):
                values[name], size = native(view, position)
                position += size
            else:
                values[name], position = yield from in_slices(view, position)
        if flexible:
            position = _read_tags(view, position, tags, values)
        return struct(**values), position

    return read


def _read_tags(
    view: memoryview, position: int, tags: dict[int | None, tuple[str, Native]], values: dict[str, Any]
) -> int:
    count, size = read_unsigned_varint(view, position)
    position += size
    for _ in range(count):
        tag, size = read_unsigned_varint(view, position)
        position += size
        _, size = read_unsigned_varint(view, position)  # the field's size
        name, native = tags[tag]
        values[name], length = native(view, position + size)
        position += size + length
    return position


def _step(struct: type[Any], spec: FieldSpec) -> _Step:
    native, flexible = _native_field(struct, spec), is_flexible(struct)
    if not _may_be_large(spec):
        return _Step(spec.name, native, None, None)
    if not spec.is_array:
        assert spec.struct is not None
        read_struct = sliced_reader(spec.struct)
        return _Step(spec.name, native, _nullable(read_struct) if spec.nullable else read_struct, None)
    length: Native = read_compact_array_length if flexible else read_legacy_array_length
    if spec.struct is None:
        return _Step(spec.name, native, _array(length, get_reader(spec.kafka_type, flexible, False)), length)
    if any(map(_may_be_large, plain_fields(spec.struct))):
        return _Step(spec.name, native, _array_of_large(length, sliced_reader(spec.struct)), None)
    return _Step(spec.name, native, _array(length, entity_reader(spec.struct)), length)


def _native_field(struct: type[Any], spec: FieldSpec) -> Native:
    (field,) = (field for field in fields(struct) if field.name == spec.name)
    native: Native = get_field_reader(struct, field, False, spec.tag is not None)
    return native


def _may_be_large(spec: FieldSpec) -> bool:
    if spec.struct is None:
        return spec.is_array and (spec.kafka_type not in FIXED or spec.kafka_type == "uuid")
    return spec.is_array or any(map(_may_be_large, plain_fields(spec.struct)))


def _nullable(read_struct: SlicedReader) -> SlicedReader:
    """KIP-893: a byte says whether the struct is there."""

    def read(view: memoryview, position: int) -> Slices[tuple[Any, int]]:
        marker, size = read_int8(view, position)
        if marker < 0:
            return None, position + size
        return (yield from read_struct(view, position + size))

    return read


def _array(read_length: Native, read_item: Native) -> SlicedReader:
    def read(view: memoryview, position: int) -> Slices[tuple[Any, int]]:
        length, size = read_length(view, position)
        position += size
        items = []
        for number in range(length):
            if not number % _FEW:
                yield
            item, size = read_item(view, position)
            position += size
            items.append(item)
        return tuple(items), position

    return read


def _array_of_large(read_length: Native, read_item: SlicedReader) -> SlicedReader:
    def read(view: memoryview, position: int) -> Slices[tuple[Any, int]]:
        length, size = read_length(view, position)
        position += size
        if length is None or length < 0:
            return None, position
        items = []
        for number in range(length):
            if not number % _FEW:
                yield
            item, position = yield from read_item(view, position)
            items.append(item)
        return tuple(items), position

    return read
