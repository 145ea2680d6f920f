"""Writers compiled from kio's message classes: ten times faster than kio's own, equal to them byte for byte.

`compile_writer(struct, newest)` makes a function `object -> bytes` for one version of one message. Runs of
fixed-size fields become one `Struct.pack`; nested structs are written in line.

The object is taken by its attributes, not by its class, nested ones too: a handler answers with the newest
version's classes (or any object of that shape) and the writer of the request's version picks the fields
that this version has. A field that the newest version no longer has, and a tagged field, may be absent: the
schema's default stands in. Every other missing attribute is the caller's mistake and raises AttributeError.
Integers pass for error codes, and for times as milliseconds; None is a null where the version allows one,
the zero UUID, and -1 as a timestamp. A tagged field at its default is left out, as Kafka does.

`compile_sliced_writer` makes a generator function of the same kind for messages that may be large: it pauses in every
array and after each large value, gives the bytes in pieces, large values uncopied, and raises `TooLarge` rather than to
make more than `ANSWER_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, replace
from datetime import UTC, datetime, timedelta
from struct import Struct, pack
from typing import Any, Final
from uuid import UUID

from moldau.base.limits import ANSWER_BYTES_MAX
from moldau.runtime.line import Slices
from moldau.wire.primitives import UVARINTS
from moldau.wire.schema import (
    FIXED,
    FieldSpec,
    field_specs,
    implicit_default,
    is_flexible,
    plain_fields,
    tagged_fields,
)

Writer = Callable[[Any], bytes]
SlicedWriter = Callable[[Any], Slices[list[bytes]]]

_PIECES_PER_PAUSE: Final = 256  # some 50 us
_LARGE_BYTES: Final = 8_192
"""Values of more bytes are pieces of their own: what a group's members say may be a megabyte each."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_UUID: Final = bytes(16)


class _Int32Packers(dict[int, Callable[..., bytes]]):
    """Packers of arrays of int32 (replicas, partitions) by length: the short ones from a table."""

    def __missing__(self, count: int) -> Callable[..., bytes]:
        return Struct(f">{count}i").pack


_INT32S: Final = _Int32Packers({count: Struct(f">{count}i").pack for count in range(16)})


class TooLarge(Exception):
    """A message is not written: it would take more than ANSWER_BYTES_MAX."""


class _Chunks:
    """What was written so far, in pieces of some kilobytes."""

    __slots__ = ("_size", "chunks")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self._size = 0

    def take(self, out: list[bytes]) -> None:
        self._add(b"".join(out))
        out.clear()

    def take_large(self, out: list[bytes], data: bytes) -> None:
        self.take(out)
        self._add(data)

    def _add(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self._size += len(chunk)
        if self._size > ANSWER_BYTES_MAX:
            raise TooLarge(f"more than {ANSWER_BYTES_MAX} bytes")


def _duration_ms(value: int | timedelta) -> int:
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1000 + round(value.microseconds / 1000)
    return value


def _timestamp_ms(value: int | datetime | None) -> int:
    if value is None:
        return -1
    return _duration_ms(value - _EPOCH) if isinstance(value, datetime) else value


def _uuid_bytes(value: UUID | bytes | None) -> bytes:
    if value is None:
        return _ZERO_UUID
    return value.bytes if isinstance(value, UUID) else value


# How the value of a fixed-size type is brought to what struct takes; the others are taken as they are.
_CONVERTERS: Final[dict[str, str]] = {
    "uuid": "uuid_bytes",
    "timedelta_i32": "duration_ms",
    "timedelta_i64": "duration_ms",
    "datetime_i64": "timestamp_ms",
}
_GLOBALS: Final[dict[str, Any]] = {
    "duration_ms": _duration_ms,
    "timestamp_ms": _timestamp_ms,
    "uuid_bytes": _uuid_bytes,
    "Chunks": _Chunks,
    "uvarint": UVARINTS,
    "int32s": _INT32S,
    "pack": pack,
}


def compile_writer(struct: type[Any], newest: type[Any] | None = None) -> Writer:
    """The writer of one message class; `newest` is the API's newest, whose objects it gets."""
    compiler = _Compiler()
    compiler.struct(struct, "message", newest or struct)
    writer: Writer = compiler.function(f"{struct.__module__}.{struct.__qualname__}")
    return writer


def compile_sliced_writer(struct: type[Any], newest: type[Any] | None = None) -> SlicedWriter:
    compiler = _Compiler(sliced=True)
    compiler.struct(struct, "message", newest or struct)
    writer: SlicedWriter = compiler.function(f"{struct.__module__}.{struct.__qualname__} in slices")
    return writer


def _compile_tagged_value(spec: FieldSpec, newest: type[Any] | None) -> Writer:
    """The writer of a tagged field's value: always flexible, and never null, since a null is left out."""
    compiler = _Compiler()
    compiler.field(replace(spec, nullable=False), "message", True, newest)
    writer: Writer = compiler.function(spec.name)
    return writer


class _Compiler:
    """Emits the source of one writer: statements as they come, fixed-size values held back while a run lasts.

    `newest` is the struct of the objects that come in, for telling which attributes they may lack; None where
    the newest version has no such struct.
    """

    def __init__(self, *, sliced: bool = False) -> None:
        self._globals = dict(_GLOBALS)
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0
        self._is_sliced = sliced
        self._run: list[tuple[str, str]] = []  # struct code and expression of the fixed-size values held back

    def function(self, name: str) -> Any:
        self._flush()
        source = "def write(message):\n out = []\n put = out.append\n"
        if self._is_sliced:
            source += " chunks = Chunks()\n" + "".join(self._lines)
            source += " chunks.take(out)\n return chunks.chunks\n yield\n"
        else:
            source += "".join(self._lines) + " return b''.join(out)\n"
        exec(compile(source, f"<writer of {name}>", "exec"), self._globals)
        return self._globals["write"]

    def struct(self, struct: type[Any], owner: str, newest: type[Any] | None) -> None:
        shape = {spec.name: spec for spec in field_specs(newest)} if newest else {}
        for spec in plain_fields(struct):
            known = shape.get(spec.name)
            value = f"{owner}.{spec.name}"
            if known is None and spec.default is not MISSING:
                value = f"getattr({owner}, {spec.name!r}, {self._constant(spec.default)})"
            self.field(spec, value, is_flexible(struct), known.struct if known else None)
        if is_flexible(struct):
            self._tagged(tagged_fields(struct), owner, shape)

    def field(self, spec: FieldSpec, value: str, flexible: bool, newest: type[Any] | None) -> None:
        if spec.is_array:
            self._array(spec, value, flexible, newest)
        elif spec.struct:
            self._nested(spec.struct, value, spec.nullable, newest)
        elif spec.kafka_type in FIXED:
            self._primitive(spec.kafka_type, value)
        else:
            self._bytes(spec.kafka_type, value, spec.nullable, flexible)

    # -- kinds of fields

    def _primitive(self, kafka_type: str, value: str) -> None:
        converter = _CONVERTERS.get(kafka_type)
        self._fixed(FIXED[kafka_type], f"{converter}({value})" if converter else value)

    def _bytes(self, kafka_type: str, value: str, nullable: bool, flexible: bool) -> None:
        data, length = self._local(), self._local()
        encode = ".encode()" if kafka_type == "string" else ""
        if nullable:
            self._emit(f"{data} = {value}")
            self._emit(f"if {data} is None: {data} = b''; {length} = -1")
            self._emit(f"else: {data} = {data}{encode}; {length} = len({data})")
        else:
            self._emit(f"{data} = {value}{encode}")
            self._emit(f"{length} = len({data})")
        self._length(flexible, "h" if kafka_type == "string" else "i", length)
        if self._is_sliced:
            self._emit(f"if {length} > {_LARGE_BYTES}: chunks.take_large(out, {data}); yield")
            self._emit(f"else: put({data})")
        else:
            self._emit(f"put({data})")

    def _nested(self, struct: type[Any], value: str, nullable: bool, newest: type[Any] | None) -> None:
        item = self._local()
        self._emit(f"{item} = {value}")
        if not nullable:
            self.struct(struct, item, newest)
            return
        self._flush()
        self._emit(f"if {item} is None: put(b'\\xff')")  # KIP-893: a byte says whether the struct is there
        with self._block("else:"):
            self._fixed("b", "1")
            self.struct(struct, item, newest)

    def _array(self, spec: FieldSpec, value: str, flexible: bool, newest: type[Any] | None) -> None:
        items, item, length = self._local(), self._local(), self._local()
        self._emit(f"{items} = {value}")
        if spec.nullable:
            self._emit(f"if {items} is None: {items} = (); {length} = -1")
            self._emit(f"else: {length} = len({items})")
        else:
            self._emit(f"{length} = len({items})")
        self._length(flexible, "i", length)
        if spec.kafka_type == "int32":
            self._emit(f"put(int32s[len({items})](*{items}))")
            return
        if spec.kafka_type in FIXED and spec.kafka_type not in _CONVERTERS:
            self._emit(f"put(pack('>%d{FIXED[spec.kafka_type]}' % len({items}), *{items}))")
            return
        with self._block(f"for {item} in {items}:"):
            if self._is_sliced:
                self._emit(f"if len(out) > {_PIECES_PER_PAUSE}: chunks.take(out); yield")
            if spec.struct:
                self.struct(spec.struct, item, newest)
            elif spec.kafka_type in FIXED:
                self._primitive(spec.kafka_type, item)
            else:
                self._bytes(spec.kafka_type, item, False, flexible)

    def _tagged(self, specs: tuple[FieldSpec, ...], owner: str, shape: dict[str, FieldSpec]) -> None:
        if not specs:
            self._fixed("x", "")  # no tagged fields: one zero byte, part of the run
            return
        self._flush()
        tags, tag, value, data = self._local(), self._local(), self._local(), self._local()
        self._emit(f"{tags} = []")
        for spec in specs:
            known = shape.get(spec.name)
            encode = _compile_tagged_value(spec, known.struct if known else None)
            default = implicit_default(spec)
            # Compared as bytes: the object may be of another class. A null has bytes only as a UUID.
            has_bytes = default is not None or (spec.kafka_type == "uuid" and not spec.is_array)
            omitted = encode(default) if has_bytes else None
            self._emit(f"{value} = getattr({owner}, {spec.name!r}, None)")
            with self._block(f"if {value} is not None:"):
                self._emit(f"{data} = {self._constant(encode)}({value})")
                self._emit(f"if {data} != {omitted!r}: {tags}.append(({spec.tag}, {data}))")
        self._emit(f"put(uvarint[len({tags})])")
        self._emit(f"for {tag}, {data} in {tags}: put(uvarint[{tag}] + uvarint[len({data})] + {data})")

    def _length(self, flexible: bool, code: str, expression: str) -> None:
        """The length of the string or array that comes next; -1 for null."""
        if flexible:
            self._flush()
            self._emit(f"put(uvarint[{expression} + 1])")
        else:
            self._fixed(code, expression)
            self._flush()

    # -- pieces of source

    def _fixed(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def _flush(self) -> None:
        if not self._run:
            return
        packer = Struct(">" + "".join(code for code, _ in self._run))
        arguments = ", ".join(expression for _, expression in self._run if expression)
        self._emit(f"put({self._constant(packer.pack)}({arguments}))")
        self._run.clear()

    @contextmanager
    def _block(self, opening: str) -> Iterator[None]:
        self._flush()
        self._emit(opening)
        self._indent += 1
        empty = len(self._lines)
        yield
        self._flush()
        if len(self._lines) == empty:
            self._emit("pass")
        self._indent -= 1

    def _emit(self, line: str) -> None:
        self._lines.append(" " * self._indent + line + "\n")

    def _local(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _constant(self, value: object) -> str:
        self._names += 1
        self._globals[f"c{self._names}"] = value
        return f"c{self._names}"
