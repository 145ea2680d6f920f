"""Requests of any size and shape, made from kio's classes: bytes first, objects never.

`encode` writes a request from a mapping of its fields; a field that is left out has the schema's default, else zero,
empty or null. An array may be a sequence of elements, or `Raw`: elements that are encoded already. So an array of
13 million elements is the bytes of one of them, repeated. Nothing is checked: what no client sends can be made, too.

`shape_versions` lists the versions of a request that differ, `array_paths` its arrays, and `filled` makes the request
in which one of these arrays has the elements that are wanted and everything around it is plausible.
"""

from __future__ import annotations

import datetime
import struct as packing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any, NamedTuple

from moldau.broker.dispatch import Route
from moldau.broker.handlers import ROUTES
from moldau.wire.apis import APIS, APIS_BY_NAME
from moldau.wire.frames import SIZE, request_header
from moldau.wire.primitives import pack_uvarint
from moldau.wire.schema import FIXED, FieldSpec, is_flexible, message_class, plain_fields, tagged_fields

CLIENT_ID = "attack"
Path = tuple[str, ...]
"""The names of the fields that lead to an array: `("topics", "partitions")`."""
Values = Mapping[str, Any]


class Raw(NamedTuple):
    """Elements of an array, encoded."""

    count: int  # type: ignore[assignment]  # as in Kafka's arrays; nobody calls tuple.count
    data: bytes


def served() -> dict[str, Route]:
    """The APIs that a client may ask, by name, as the broker advertises them."""
    return {route.name: route for route in ROUTES.values() if not route.is_internal}


def frame(api: str, version: int, values: Values, *, correlation_id: int = 1, tags: bytes = b"\0") -> bytes:
    """A whole request; `tags` are the tagged fields of a flexible header."""
    key = APIS_BY_NAME[api].key
    return whole(key, version, body(api, version, values), correlation_id=correlation_id, tags=tags)


def body(api: str, version: int, values: Values) -> bytes:
    return encode(message_class("request", APIS_BY_NAME[api].key, version), values)


def whole(key: int, version: int, data: bytes, *, correlation_id: int = 1, tags: bytes = b"\0") -> bytes:
    """Size, header, body."""
    head = request_header(key, version, correlation_id, CLIENT_ID)
    if key in APIS and version >= APIS[key].flexible_from:
        head = head[:-1] + tags
    return b"".join((SIZE.pack(len(head) + len(data)), head, data))


def unknown_tags(count: int) -> bytes:
    """A section of tagged fields that nobody knows, each of two bytes: tag 99, no content."""
    return pack_uvarint(count) + b"\x63\x00" * count


# Encoding


def encode(struct: type[Any], values: Values) -> bytes:
    flexible = is_flexible(struct)
    pieces = [_field(spec, values.get(spec.name, MISSING), flexible) for spec in plain_fields(struct)]
    if flexible:
        pieces.append(values.get("unknown_tags") or _tagged(struct, values))
    return b"".join(pieces)


def _tagged(struct: type[Any], values: Values) -> bytes:
    pieces = []
    for spec in tagged_fields(struct):
        if spec.name in values:
            data = _field(replace(spec, nullable=False), values[spec.name], True)
            pieces.append(pack_uvarint(spec.tag or 0) + pack_uvarint(len(data)) + data)
    return pack_uvarint(len(pieces)) + b"".join(pieces)


def _field(spec: FieldSpec, value: Any, flexible: bool) -> bytes:
    if value is MISSING:
        value = _default(spec)
    if spec.is_array:
        return _array(spec, value, flexible)
    if spec.struct:
        if value is None:
            return b"\xff"
        return (b"\x01" if spec.nullable else b"") + encode(spec.struct, value)
    if spec.kafka_type in FIXED:
        return _fixed(spec.kafka_type, value)
    return _bytes(spec.kafka_type, value, flexible)


def _array(spec: FieldSpec, value: Any, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    if isinstance(value, Raw):
        elements = value
    else:
        elements = Raw(len(value), b"".join(element(spec, one, flexible) for one in value))
    count = pack_uvarint(elements.count + 1) if flexible else SIZE.pack(elements.count)
    return count + elements.data


def element(spec: FieldSpec, value: Any, flexible: bool) -> bytes:
    """One element of an array."""
    return _field(replace(spec, is_array=False, nullable=False), value, flexible)


def element_of(api: str, version: int, path: str, value: Any) -> bytes:
    """One element of the array at a path as `topics.partitions`."""
    struct = message_class("request", APIS_BY_NAME[api].key, version)
    *before, name = path.split(".")
    for step in before:
        inner = next(spec.struct for spec in plain_fields(struct) if spec.name == step)
        assert inner is not None
        struct = inner
    spec = next(spec for spec in plain_fields(struct) if spec.name == name)
    return element(spec, value, is_flexible(struct))


def _fixed(kafka_type: str, value: Any) -> bytes:
    if kafka_type == "uuid":
        return bytes(value or 16)
    if isinstance(value, datetime.timedelta):
        value = int(value.total_seconds() * 1000)
    if kafka_type == "float64" and not isinstance(value, int | float):
        value = 1.0  # other APIs have texts of that name
    return packing.pack(">" + FIXED[kafka_type], value)


def _bytes(kafka_type: str, value: Any, flexible: bool) -> bytes:
    is_string = kafka_type == "string"
    if value is None:
        return b"\0" if flexible else b"\xff\xff" if is_string else b"\xff\xff\xff\xff"
    data = value.encode() if isinstance(value, str) else value
    if flexible:
        return pack_uvarint(len(data) + 1) + data
    return packing.pack(">h" if is_string else ">i", len(data)) + data


def _default(spec: FieldSpec) -> Any:
    if spec.is_array:
        return ()
    if spec.struct:
        return None if spec.nullable else {}
    if spec.default is not MISSING:
        return spec.default
    if spec.nullable and spec.kafka_type not in FIXED:
        return None
    return {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16)}.get(spec.kafka_type, 0)


# Shapes


def shape_versions(api: str, low: int, high: int) -> list[int]:
    """The lowest and the highest version, and each one that is laid out otherwise than the one before it."""
    chosen, before = [], None
    for version in range(low, high + 1):
        struct = message_class("request", APIS_BY_NAME[api].key, version)
        shape = _shape(struct)
        if shape != before or version == high:
            chosen.append(version)
        before = shape
    return chosen


def _shape(struct: type[Any]) -> tuple[Any, ...]:
    specs = (*plain_fields(struct), *tagged_fields(struct))
    fields = tuple(
        (spec.name, spec.kafka_type, spec.is_array, spec.tag, spec.struct and _shape(spec.struct))
        for spec in specs
    )
    return is_flexible(struct), *fields


def array_paths(struct: type[Any], before: Path = ()) -> Iterator[Path]:
    """Every array of a message, also within others."""
    for spec in plain_fields(struct):
        path = (*before, spec.name)
        if spec.is_array:
            yield path
        if spec.struct:
            yield from array_paths(spec.struct, path)


# Plausible content


@dataclass(frozen=True, slots=True)
class Names:
    """What there is on the broker, so that a request may name it."""

    topic: str = "attack-topic"
    topic_id: bytes = bytes(16)
    group: str = "attack-group"
    transactional_id: str = "attack-transaction"
    producer_id: int = 0
    log_dir: str = "/"


_PLAIN: dict[str, Any] = {
    "partition_index": 0,
    "index": 0,
    "partition": 0,
    "partitions": 0,
    "partition_indexes": 0,
    "timestamp": -1,
    "broker_ids": 1,
    "replicas": 1,
    "replica_id": -1,
    "resource_type": 2,
    "config_operation": 0,
    "value": "86400000",
    "configuration_keys": "retention.ms",
    "configs.name": "retention.ms",
    "protocols.name": "range",
    "protocol_type": "consumer",
    "acks": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "timeout": 1000,
    "session_timeout": 30_000,
    "rebalance_timeout": 30_000,
    "transaction_timeout": 30_000,
    "states_filter": "Stable",
    "types_filter": "classic",
    "state_filters": "Ongoing",
    "resource_types": 2,
    "records": None,
    "committed_metadata": "",
}


def plausible(names: Names, path: Path) -> Any:
    """What a client would write into this field, or MISSING."""
    field = path[-1].removeprefix("v3_and_below_")
    named = ".".join(path[-2:])
    if named in _PLAIN or field in _PLAIN:
        return _PLAIN.get(named, _PLAIN.get(field))
    if field in ("topic", "topic_name", "topic_names", "resource_name", "name"):
        return names.topic
    if field == "topic_id":
        return names.topic_id
    if field in ("group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key"):
        return names.group
    if field in ("transactional_id", "transactional_ids") and path[0] != "Produce":
        return names.transactional_id
    if field in ("producer_id", "producer_id_filters"):
        return names.producer_id
    return names.log_dir if field == "path" else MISSING


Elements = Callable[[Path, FieldSpec, bool], Raw]
"""Makes the elements of the array that is attacked, from its path, its field and whether it is compact."""


def filled(api: str, version: int, path: Path, names: Names, elements: Elements) -> bytes:
    """The body of a request with the array at `path` full, in one element each of the arrays around it."""
    struct = message_class("request", APIS_BY_NAME[api].key, version)
    return encode(struct, _around(struct, (api,), path, names, elements))


def _around(
    struct: type[Any], before: Path, path: Path, names: Names, elements: Elements | None
) -> dict[str, Any]:
    """Plausible fields; those on the path lead to the elements."""
    values: dict[str, Any] = {}
    for spec in plain_fields(struct):
        here = (*before, spec.name)
        if path and spec.name == path[0]:
            if len(path) == 1:
                assert elements is not None
                values[spec.name] = elements(here, spec, is_flexible(struct))
            elif spec.struct is not None:
                inner = _around(spec.struct, here, path[1:], names, elements)
                values[spec.name] = [inner] if spec.is_array else inner
        elif not spec.is_array and not spec.struct:
            value = plausible(names, here)
            if value is not MISSING:
                values[spec.name] = value
    return values


def least(total_bytes: int) -> Elements:
    """As many of the smallest elements as go into so many bytes."""

    def make(_: Path, spec: FieldSpec, flexible: bool) -> Raw:
        one = element(spec, _smallest(spec), flexible)
        return Raw(total_bytes // len(one), one * (total_bytes // len(one)))

    return make


def _smallest(spec: FieldSpec) -> Any:
    if spec.struct is None:
        return {"string": "", "bytes": b"", "records": None, "uuid": bytes(16)}.get(spec.kafka_type, 0)
    return {
        field.name: None if field.nullable and not field.struct else MISSING
        for field in plain_fields(spec.struct)
        if field.kafka_type not in FIXED
    }


def same(count: int, names: Names) -> Elements:
    """One element that names what exists, repeated."""

    def make(path: Path, spec: FieldSpec, flexible: bool) -> Raw:
        return Raw(count, element(spec, _one(path, spec, names), flexible) * count)

    return make


def _one(path: Path, spec: FieldSpec, names: Names) -> Any:
    """An element that a client would write, with one element in each array within it."""
    if spec.struct is None:
        value = plausible(names, path)
        return _smallest(spec) if value is MISSING else value
    values = _around(spec.struct, path, (), names, None)
    for field in plain_fields(spec.struct):
        if field.is_array:
            values[field.name] = [_one((*path, field.name), replace(field, is_array=False), names)]
    return values


NULLABLE_NAMES = ("name", "topic_id", "resource_name_filter")
MARK_STRING = "@attack@"
MARK_UUID = b"@attack@uuid@mk@"
MARK_INT32 = 0x40414243
MARK_INT64 = 0x4041424340414243


def different(total_bytes: int, count_max: int = 1 << 31) -> Elements:
    """As many elements as go into so many bytes, no two with the same names or numbers."""

    def make(path: Path, spec: FieldSpec, flexible: bool) -> Raw:
        marked = element(spec, _marked(path, spec), flexible)
        count = min(total_bytes // len(marked), count_max)
        return Raw(count, b"".join(numbered(marked, number) for number in range(count)))

    return make


def _marked(path: Path, spec: FieldSpec) -> Any:
    if spec.struct is None:
        return _mark(path[-1], spec)
    values: dict[str, Any] = {}
    for field in plain_fields(spec.struct):
        here = (*path, field.name)
        if field.is_array:
            values[field.name] = [_marked(here, replace(field, is_array=False))]
        elif field.struct is None and (not field.nullable or field.name in NULLABLE_NAMES):
            values[field.name] = _marked(here, field)
    return values


def _mark(name: str, spec: FieldSpec) -> Any:
    if spec.kafka_type in ("int32", "int64"):
        if name.endswith(("epoch", "_bytes", "count", "num_partitions", "timestamp")):
            return _PLAIN.get(name, -1)
        return MARK_INT32 if spec.kafka_type == "int32" else MARK_INT64
    marks = {"string": MARK_STRING, "uuid": MARK_UUID, "bytes": b"", "records": None}
    return marks[spec.kafka_type] if spec.kafka_type in marks else _PLAIN.get(name, 0)


def numbered(marked: bytes, number: int) -> bytes:
    """An element with a number in place of each mark."""
    for mark, form in _MARKS:
        if mark in marked:
            marked = marked.replace(mark, form(number))
    return marked


_MARKS: Sequence[tuple[bytes, Callable[[int], bytes]]] = (
    (MARK_UUID, lambda number: (number + 1).to_bytes(16, "big")),
    (MARK_STRING.encode(), lambda number: b"%08d" % number),
    (packing.pack(">q", MARK_INT64), packing.Struct(">q").pack),
    (packing.pack(">i", MARK_INT32), packing.Struct(">i").pack),
)
