"""Strategies for bad input: valid requests and batches of every kind, and ways to spoil them."""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from bench.raw import frame, request_class
from moldau.records.batch import CRC, CRC_POSITION, HEADER, BatchHeader, crc_of, read_header
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, assemble, build_batch
from moldau.wire.primitives import pack_uvarint
from moldau.wire.schema import FieldSpec, field_specs

TOPICS = ("fuzz-plain", "fuzz-compact", "fuzz-gzip", "fuzz-append-time")
ALTERED = "fuzz-altered"
"""The one topic whose configs may change: what is stored in the others is judged by theirs."""
DELETE_TOPICS, CREATE_TOPICS, CREATE_PARTITIONS = 20, 19, 37
ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 33, 44
SMALL_INTEGERS = st.sampled_from([0, 1, 2, -1, -2, 7])
EXTREMES = [0, 1, -1, 127, 128, 255, 32767, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**63 - 1]
EDGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "float64": (0, 1),
}
NAMES = [*TOPICS, "", "no-such-topic", "a/b", "..", "x" * 250, "Vltava", "1", "cleanup.policy", "compact"]
MILLISECONDS = st.integers(0, 50).map(lambda number: datetime.timedelta(milliseconds=number))


# Valid requests


@cache
def requests(api_key: int, version: int) -> st.SearchStrategy[Any]:
    """Any request of an API and version that can be written: its fields are valid, their meaning is not."""
    overrides: dict[str, st.SearchStrategy[Any]] = {}
    if api_key in (CREATE_TOPICS, CREATE_PARTITIONS):
        # Otherwise a changed byte now and then asks for thousands of partitions, and rightly gets them.
        overrides["validate_only"] = st.just(True)
    names = NAMES
    if api_key == DELETE_TOPICS:
        names = ["gone", ""]
    elif api_key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        names = [ALTERED, *(name for name in NAMES if name not in TOPICS)]
    return _structs(request_class(api_key, version), st.sampled_from(names), overrides)


def _structs(
    cls: type[Any], names: st.SearchStrategy[str], overrides: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    specs = field_specs(cls)
    return st.builds(
        cls,
        **{
            spec.name: overrides[spec.name] if spec.name in overrides else _field(spec, names)
            for spec in specs
        },
    )


def _field(spec: FieldSpec, names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    value = _structs(spec.struct, names, {}) if spec.struct else _primitive(spec.kafka_type, names)
    if spec.is_array:
        value = st.lists(value, max_size=3).map(tuple)
    return st.none() | value if spec.nullable else value


def _primitive(kafka_type: str, names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    match kafka_type:
        case "string":
            return names
        case "bool":
            return st.booleans()
        case "uuid":
            return st.none() | st.integers(1, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
        case "bytes":
            return st.binary(max_size=64)
        case "records":
            return batches()
        case "timedelta_i32" | "timedelta_i64":
            return MILLISECONDS
        case "datetime_i64":
            return st.just(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        case "error_code":
            return st.just(0)
        case number:
            return SMALL_INTEGERS.filter(lambda n: n >= EDGES[number][0]) | st.sampled_from(EDGES[number])


# Spoiling bytes


@st.composite
def spoiled(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with one to four places changed: flipped, overwritten with an extreme number, cut out, doubled."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["flip", "number", "cut", "insert", "end"])):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                size, number = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from(EXTREMES))
                data[at : at + size] = (number % 256**size).to_bytes(size, "big")
            case "cut":
                del data[at : at + draw(st.integers(1, 16))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "end":
                del data[at:]
    return bytes(data)


@st.composite
def frames(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A body with its size in front; now and then the size lies."""
    body = draw(bodies)
    size = draw(st.just(len(body)) | st.just(len(body)) | st.sampled_from([-1, 0, len(body) + 9, 2**31 - 1]))
    return struct.pack(">i", size) + body


def request_bodies(served: list[tuple[int, int]]) -> st.SearchStrategy[bytes]:
    """A whole valid request of any served API and version, without its size."""
    return st.sampled_from(served).flatmap(lambda api: requests(*api)).map(lambda r: frame(r)[4:])


# Record batches


def records() -> st.SearchStrategy[list[Record]]:
    contents = st.none() | st.binary(max_size=40)
    headers = st.lists(st.tuples(st.sampled_from(["h", "trace"]), contents), max_size=2).map(tuple)
    one = st.tuples(st.integers(1_600_000_000_000, 1_700_000_000_000), contents, contents, headers)
    return st.lists(one, min_size=1, max_size=5).map(
        lambda many: [Record(offset, *parts) for offset, parts in enumerate(many)]
    )


def batches() -> st.SearchStrategy[bytes]:
    codecs = st.sampled_from(list(Codec))
    return st.builds(lambda many, codec: build_batch(many, codec=codec), records(), codecs)


@st.composite
def lying_batches(draw: st.DrawFn) -> bytes:
    """A batch whose header says something else than its records, with a checksum that is right all the same."""
    batch = draw(batches())
    header = read_header(batch)
    name = draw(st.sampled_from([n for n in BatchHeader._fields if n not in ("crc",)]))
    formats: dict[str, str] = dict(zip(BatchHeader._fields, HEADER.format.lstrip(">"), strict=True))
    low, high = {"q": (-(2**63), 2**63 - 1), "i": (-(2**31), 2**31 - 1), "h": (-(2**15), 2**15 - 1)}.get(
        formats[name], (0, 255)
    )
    lie = draw(st.sampled_from([low, high, 0, 1, 2, 61, 255, 10_000]).filter(lambda n: low <= n <= high))
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *header._replace(**{name: lie}))
    return with_crc(changed)


@st.composite
def spoiled_records(draw: st.DrawFn) -> bytes:
    """Records that were spoiled before they were compressed; header and checksum are right."""
    plain = draw(batches().filter(lambda batch: read_header(batch).attributes & 7 == 0))
    codec = draw(st.sampled_from(list(Codec)))
    content = draw(spoiled(st.just(plain[61:])))
    packed = draw(st.sampled_from([compress(codec, content, None), content]))
    return assemble(read_header(plain)._replace(attributes=int(codec)), packed)


def bombs() -> st.SearchStrategy[bytes]:
    return st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]).map(bomb)


@cache
def bomb(codec: Codec) -> bytes:
    """A batch below the size limit that unfolds to hundreds of megabytes of zeros."""
    sizes = {Codec.GZIP: 400 << 20, Codec.SNAPPY: 16 << 20, Codec.LZ4: 160 << 20, Codec.ZSTD: 400 << 20}
    seemly = read_header(build_batch([Record(0, 1_700_000_000_000, None, b"x")]))
    return assemble(seemly._replace(attributes=int(codec)), compress(codec, bytes(sizes[codec]), None))


def with_crc(batch: bytearray) -> bytes:
    if len(batch) > 61:
        CRC.pack_into(batch, CRC_POSITION, crc_of(batch, 0, len(batch)))
    return bytes(batch)


def bad_batches() -> st.SearchStrategy[bytes]:
    joined: Callable[[list[bytes]], bytes] = b"".join
    return st.one_of(
        spoiled(batches()),
        spoiled(batches()).map(lambda batch: with_crc(bytearray(batch))),
        lying_batches(),
        lying_batches(),
        spoiled_records(),
        st.lists(batches() | lying_batches(), max_size=3).map(joined),
        st.binary(max_size=100),
    )


# Large requests: what is longer than INLINE_REQUEST_BYTES_MAX is decoded and served in slices

COUNTS = [0, 1, 2, 126, 127, 128, 16_383, 16_384, 99_999, 100_000, 100_001, 2**31 - 1, 2**32 - 1]


@cache
def large_structs(api_key: int, version: int) -> st.SearchStrategy[Any]:
    """A request one of whose arrays, at any depth, has thousands of elements: few different ones, repeated."""
    return requests(api_key, version).flatmap(_repeated)


@st.composite
def _repeated(draw: st.DrawFn, request: Any) -> Any:
    paths = list(_arrays(request))
    if not paths:
        return request
    return _with_array(request, draw(st.sampled_from(paths)), draw(st.sampled_from([600, 3_000, 12_000])))


def _arrays(struct_: Any, before: tuple[tuple[str, int], ...] = ()) -> Iterator[tuple[tuple[str, int], ...]]:
    """Where arrays with elements are; the last step names the array."""
    for spec in field_specs(type(struct_)):
        value = getattr(struct_, spec.name)
        if spec.is_array and value:
            yield (*before, (spec.name, 0))
            if spec.struct:
                for number, inner in enumerate(value):
                    yield from _arrays(inner, (*before, (spec.name, number)))


def _with_array(struct_: Any, path: tuple[tuple[str, int], ...], count: int) -> Any:
    (name, number), *rest = path
    value = getattr(struct_, name)
    if not rest:
        return replace(struct_, **{name: (value * (count // len(value) + 1))[:count]})
    changed = _with_array(value[number], tuple(rest), count)
    return replace(struct_, **{name: (*value[:number], changed, *value[number + 1 :])})


def large_bodies(served: list[tuple[int, int]]) -> st.SearchStrategy[bytes]:
    """Whole and well-formed, and mostly too long to be served at once."""
    return st.sampled_from(served).flatmap(lambda api: large_structs(*api)).map(lambda r: frame(r)[4:])


@st.composite
def spoiled_large(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A large body whose structure lies: counts, nulls in the middle, sections of tagged fields, a piece repeated or
    missing. Places are chosen at the beginning, where the counts of outer arrays are, or anywhere."""
    data = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 3))):
        if len(data) < 16:
            break
        at = draw(st.integers(10, min(len(data), 80) - 1) | st.integers(10, len(data) - 1))
        match draw(st.sampled_from(["count", "compact count", "null", "tags", "repeat", "drop", "end"])):
            case "count":
                data[at : at + 4] = (draw(st.sampled_from(COUNTS)) % 2**32).to_bytes(4, "big")
            case "compact count":
                data[at : at + 1] = pack_uvarint(draw(st.sampled_from(COUNTS)))
            case "null":
                data[at : at + 1] = draw(st.sampled_from([b"\0", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff"]))
            case "tags":
                data[at : at + 1] = draw(tag_sections())
            case "repeat":
                size = draw(st.integers(1, 64))
                data[at:at] = bytes(data[at : at + size]) * draw(st.sampled_from([1, 50, 2_000]))
            case "drop":
                del data[at : at + draw(st.sampled_from([1, 2, 7, 500]))]
            case "end":
                del data[at:]
    return bytes(data)


@st.composite
def tag_sections(draw: st.DrawFn) -> bytes:
    """Tagged fields that nobody knows, some within others, and known tags with anything in them."""
    content = draw(st.binary(max_size=8))
    for _ in range(draw(st.integers(0, 12))):  # each the content of the next
        content = b"\x01" + pack_uvarint(draw(st.integers(0, 40))) + pack_uvarint(len(content)) + content
    lie = draw(st.sampled_from([0, 0, 0, 1, 63, 64, 65, 10_000]))
    return (
        pack_uvarint(1 + lie) + pack_uvarint(draw(st.integers(0, 4))) + pack_uvarint(len(content)) + content
    )
