"""Reading and writing the fields of records that coordinators store: Kafka's primitive types, both encodings.

A stored key or value begins with its version as an int16. From a version of its own on a value is flexible: lengths
are varints, and tagged fields follow (KIP-482). What is read here was written by a coordinator, so bytes that do not
fit are damage, or of a later version: `BadFields`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct, pack, unpack
from struct import error as StructError
from uuid import UUID

from moldau.wire.primitives import UVARINTS, WireError, pack_string, pack_tagged_fields, read_uvarint

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class BadFields(ValueError):
    """These bytes are not the record that their version says, or a value does not fit into a record."""


class FieldReader:
    """Takes field after field. `flexible` may be set once the version is known."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = memoryview(data)
        self._position = 0
        self.flexible = flexible

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def int32s(self) -> tuple[int, ...]:
        """An array of them."""
        count = self.array()
        return unpack(f">{count}i", self._take(count * _INT32.size))

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self._take(16)))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise BadFields("a text that must be there is null")
        return text

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        return None if length < 0 else str(self._take(length), "utf-8", "replace")

    def blob(self) -> bytes:
        length = self._length(_INT32)
        return b"" if length < 0 else bytes(self._take(length))

    def array(self) -> int:
        """The number of elements that follow; none for a null."""
        return max(0, self._length(_INT32))

    def tagged(self) -> dict[int, memoryview]:
        """The tagged fields of a flexible version; none of any other."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            fields[tag] = self._take(self._uvarint())
        return fields

    def _number(self, packing: Struct) -> int:
        (number,) = packing.unpack(self._take(packing.size))
        return int(number)

    def _length(self, packing: Struct) -> int:
        return self._uvarint() - 1 if self.flexible else self._number(packing)

    def _uvarint(self) -> int:
        try:
            value, self._position = read_uvarint(self._data, self._position)
        except (IndexError, WireError):
            raise BadFields("a record ends within a number") from None
        return value

    def _take(self, length: int) -> memoryview:
        taken = self._data[self._position : self._position + length]
        if len(taken) != length:
            raise BadFields("a record ends too early")
        self._position += length
        return taken


class FieldWriter:
    """Appends field after field; every call returns the writer."""

    __slots__ = ("_flexible", "_out")

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self._out = bytearray(_INT16.pack(version))
        self._flexible = flexible

    def int8(self, value: int) -> FieldWriter:
        self._out += _INT8.pack(value)
        return self

    def int16(self, value: int) -> FieldWriter:
        self._out += _INT16.pack(value)
        return self

    def int32(self, value: int) -> FieldWriter:
        self._out += _INT32.pack(value)
        return self

    def int64(self, value: int) -> FieldWriter:
        self._out += _INT64.pack(value)
        return self

    def int32s(self, values: Collection[int]) -> FieldWriter:
        """An array of them."""
        self.array(len(values))
        self._out += pack(f">{len(values)}i", *values)
        return self

    def uuid(self, value: UUID) -> FieldWriter:
        self._out += value.bytes
        return self

    def string(self, text: str | None) -> FieldWriter:
        try:
            self._out += pack_string(text, self._flexible)
        except (StructError, UnicodeEncodeError):
            raise BadFields("a text that cannot be stored") from None
        return self

    def blob(self, data: bytes) -> FieldWriter:
        length = len(data)
        self._out += UVARINTS[length + 1] if self._flexible else _INT32.pack(length)
        self._out += data
        return self

    def array(self, count: int) -> FieldWriter:
        self._out += UVARINTS[count + 1] if self._flexible else _INT32.pack(count)
        return self

    def tagged(self, fields: Mapping[int, bytes] = {}) -> FieldWriter:
        """The end of a flexible struct."""
        if fields:
            self._out += pack_tagged_fields(sorted(fields.items()))
        else:
            self._out.append(0)
        return self

    def done(self) -> bytes:
        return bytes(self._out)


def read_uuid(data: memoryview | None) -> UUID | None:
    """A tagged UUID; None where it is absent or zero."""
    return None if data is None or not any(data) else UUID(bytes=bytes(data))
