"""Guards compiled from kio's message classes: they walk a message before kio's native reader may touch it.

kio's reader reserves room for as many elements as an array claims, which ends the process when the claim is
a lie, and it refuses the tagged fields that a newer client may add to any flexible version (KIP-482). So a
guard checks that every array can lie within the message, that nothing is null that may not be, and that known
tagged fields have the size that they claim; and it cuts out the tagged fields that this version does not know.

`compile_guard(struct)` makes a function `(view, position, stop, cuts) -> position after the struct`. It
appends `(start, stop, replacement)` to `cuts` for each section of tagged fields with an unknown one. It
raises WireError, or IndexError or struct.error where the message ends too early, or it returns a position past
the end. Fixed-size values are stepped over, not looked at, and UTF-8 is left to the reader.

`compile_sliced_guard(struct)` makes a generator function of the same kind for messages that may be large: it pauses in
every array, counts the elements of all of them (those with many fields more than once), and refuses more than
`REQUEST_ELEMENTS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from struct import Struct, calcsize
from typing import Any, Final

from moldau.base.limits import REQUEST_ELEMENTS_MAX, TAGGED_FIELD_BYTES_MAX, TAGGED_FIELDS_MAX
from moldau.runtime.line import Slices
from moldau.wire.primitives import WireError, pack_uvarint, read_uvarint
from moldau.wire.schema import FIXED, FieldSpec, is_flexible, plain_fields, tagged_fields

Cut = tuple[int, int, bytes]
Guard = Callable[[memoryview, int, int, list[Cut]], int]
SlicedGuard = Callable[[memoryview, int, int, list[Cut]], Slices[int]]

_STEPS_PER_PAUSE_MASK: Final = 63  # a pause after 64 elements, some 20 us

_SIZES: Final = {kafka_type: calcsize(">" + code) for kafka_type, code in FIXED.items()}


def _refuse(what: str, value: int) -> None:
    raise WireError(f"{what} of {value}")


def _refuse_elements() -> None:
    raise WireError(f"more than {REQUEST_ELEMENTS_MAX} elements")


def _skip_bytes(view: memoryview, position: int, nullable: bool) -> int:
    """Step over a compact string or bytes."""
    length, position = read_uvarint(view, position)
    if not length and not nullable:
        raise WireError("null where there may be none")
    return position + max(length - 1, 0)


_GLOBALS: Final[dict[str, Any]] = {
    "int8": Struct(">b").unpack_from,
    "int16": Struct(">h").unpack_from,
    "int32": Struct(">i").unpack_from,
    "read_uvarint": read_uvarint,
    "refuse": _refuse,
    "refuse_elements": _refuse_elements,
    "skip_bytes": _skip_bytes,
}


def compile_guard(struct: type[Any]) -> Guard:
    compiler = _Compiler()
    compiler.struct(struct)
    guard: Guard = compiler.function(f"{struct.__module__}.{struct.__qualname__}")
    return guard


def compile_sliced_guard(struct: type[Any]) -> SlicedGuard:
    compiler = _Compiler(sliced=True)
    compiler.struct(struct)
    guard: SlicedGuard = compiler.function(f"{struct.__module__}.{struct.__qualname__} in slices")
    return guard


def _compile_tagged_guard(spec: FieldSpec) -> Guard:
    compiler = _Compiler()
    compiler.field(replace(spec, nullable=False), True)
    guard: Guard = compiler.function(spec.name)
    return guard


def _walk_tagged_fields(
    known: dict[int, Guard], view: memoryview, position: int, stop: int, cuts: list[Cut]
) -> int:
    """Step over a section of tagged fields that is not empty, and cut out the unknown ones."""
    section = position
    count, position = read_uvarint(view, position)
    if count > TAGGED_FIELDS_MAX:
        raise WireError(f"{count} tagged fields (allowed: {TAGGED_FIELDS_MAX})")
    kept = []
    changed = False
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        after = position + size
        if after > stop:
            raise WireError("a tagged field reaches past the end of the message")
        guard = known.get(tag)
        if guard is None:
            changed = True
        elif size > TAGGED_FIELD_BYTES_MAX:
            raise WireError(f"tagged field {tag} of {size} bytes (allowed: {TAGGED_FIELD_BYTES_MAX})")
        else:
            inner: list[Cut] = []
            if guard(view, position, after, inner) != after:
                raise WireError(f"tagged field {tag} does not have its size")
            value = make_cuts(view, position, after, inner)
            kept.append(pack_uvarint(tag) + pack_uvarint(len(value)) + value)
            changed = changed or bool(inner)
        position = after
    if changed:
        cuts.append((section, position, pack_uvarint(len(kept)) + b"".join(kept)))
    return position


def make_cuts(view: memoryview, start: int, stop: int, cuts: list[Cut]) -> bytes:
    """The bytes from `start` to `stop` with the cuts made, which are in order and do not overlap."""
    pieces: list[bytes | memoryview] = []
    for cut_start, cut_stop, replacement in cuts:
        pieces += view[start:cut_start], replacement
        start = cut_stop
    pieces.append(view[start:stop])
    return b"".join(pieces)


def _bytes_min(spec: FieldSpec, flexible: bool) -> int:
    """The fewest bytes that one element of an array can take."""
    if spec.struct:
        flexible = is_flexible(spec.struct)
        parts = (
            (1 if flexible else 4) if field.is_array else 1 if field.nullable else _bytes_min(field, flexible)
            for field in plain_fields(spec.struct)
        )
        return sum(parts) + flexible
    if spec.kafka_type in FIXED:
        return _SIZES[spec.kafka_type]
    if flexible:
        return 1
    return 2 if spec.kafka_type == "string" else 4


def _weight(spec: FieldSpec) -> int:
    """How many elements one of these counts for, by what kio's reader takes to make it: 0.3 us for each of them.

    A UUID takes as long as a struct of a few other fields, and so do two texts or four numbers more.
    """
    if spec.struct is None:
        return 1
    types = [
        field.kafka_type for field in plain_fields(spec.struct) if field.struct is None and not field.is_array
    ]
    texts = sum(one in ("string", "bytes") for one in types)
    uuids = types.count("uuid")
    return 1 + uuids + texts // 2 + (len(types) - texts - uuids) // 4


class _Compiler:
    """Emits the source of one guard: `p` is the position; steps over fixed-size values are added up."""

    def __init__(self, *, sliced: bool = False) -> None:
        self._globals = dict(_GLOBALS)
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0
        self._step = 0
        self._is_sliced = sliced
        if sliced:
            self._emit(f"left = {REQUEST_ELEMENTS_MAX}")

    def function(self, name: str) -> Any:
        self._take_step()
        source = "def walk(view, p, stop, cuts):\n" + "".join(self._lines) + " return p\n"
        if self._is_sliced:
            source += " yield\n"  # a generator, even of a message without an array
        exec(compile(source, f"<guard of {name}>", "exec"), self._globals)
        return self._globals["walk"]

    def struct(self, struct: type[Any]) -> None:
        for spec in plain_fields(struct):
            self.field(spec, is_flexible(struct))
        if is_flexible(struct):
            self._tagged(tagged_fields(struct))

    def field(self, spec: FieldSpec, flexible: bool) -> None:
        if spec.is_array:
            self._array(spec, flexible)
        elif spec.struct:
            self._nested(spec.struct, spec.nullable)
        elif spec.kafka_type in FIXED:
            self._step += _SIZES[spec.kafka_type]
        else:
            self._bytes(spec, flexible)

    # -- kinds of fields

    def _bytes(self, spec: FieldSpec, flexible: bool) -> None:
        self._take_step()
        length = self._local()
        if flexible:
            self._emit(f"{length} = view[p]")
            # A compact length is one more than the bytes that follow, so a short one is also the step over both.
            self._emit(f"if 0 < {length} < 128: p += {length}")
            self._emit(f"else: p = skip_bytes(view, p, {spec.nullable})")
        else:
            code, size = ("int16", 2) if spec.kafka_type == "string" else ("int32", 4)
            self._emit(f"{length} = {code}(view, p)[0]")
            self._emit(f"if {length} >= 0: p += {length} + {size}")
            self._emit(f"elif {length} == -1 and {spec.nullable}: p += {size}")
            self._emit(f"else: refuse('length', {length})")

    def _nested(self, struct: type[Any], nullable: bool) -> None:
        if not nullable:
            self.struct(struct)
            return
        self._take_step()
        marker = self._local()
        self._emit(f"{marker} = int8(view, p)[0]; p += 1")
        with self._block(f"if {marker} >= 0:"):  # KIP-893
            self.struct(struct)

    def _array(self, spec: FieldSpec, flexible: bool) -> None:
        self._take_step()
        length, least = self._local(), -1 if spec.nullable else 0
        if flexible:
            self._emit(f"{length} = view[p] - 1; p += 1")
            self._emit(f"if {length} > 126: {length}, p = read_uvarint(view, p - 1); {length} -= 1")
        else:
            self._emit(f"{length} = int32(view, p)[0]; p += 4")
        with self._block(f"if {length}:"):
            room = f"(stop - p) // {max(1, _bytes_min(spec, flexible))}"
            self._emit(f"if not {least} <= {length} <= {room}: refuse('array', {length})")
            if self._is_sliced:
                self._emit(f"left -= {length} * {_weight(spec)} if {length} > 0 else 0")
                self._emit("if left < 0: refuse_elements()")
            if spec.kafka_type in FIXED:
                self._emit(f"if {length} > 0: p += {length} * {_SIZES[spec.kafka_type]}")
                return
            index = self._local()
            with self._block(f"for {index} in range({length}):"):
                if self._is_sliced:
                    self._emit(f"if not {index} & {_STEPS_PER_PAUSE_MASK}: yield")
                self.field(replace(spec, is_array=False, nullable=False), flexible)

    def _tagged(self, specs: tuple[FieldSpec, ...]) -> None:
        self._take_step()
        walk = self._constant(_walk_tagged_fields)
        known = self._constant({spec.tag: _compile_tagged_guard(spec) for spec in specs})
        self._emit(f"if view[p]: p = {walk}({known}, view, p, stop, cuts)")
        self._emit("else: p += 1")

    # -- pieces of source

    def _take_step(self) -> None:
        if self._step:
            self._emit(f"p += {self._step}")
            self._step = 0

    @contextmanager
    def _block(self, opening: str) -> Iterator[None]:
        self._take_step()
        self._emit(opening)
        self._indent += 1
        empty = len(self._lines)
        yield
        self._take_step()
        if len(self._lines) == empty:
            self._emit("pass")
        self._indent -= 1

    def _emit(self, line: str) -> None:
        self._lines.append(" " * self._indent + line + "\n")

    def _local(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _constant(self, value: object) -> str:
        self._names += 1
        self._globals[f"c{self._names}"] = value
        return f"c{self._names}"
