"""Attacks on every array of every request that the broker serves, made from the schema.

*least*: as many of the smallest elements as fit into a frame; *same*: one name that exists, again and again;
*different*: names of which no two are equal. The lowest and the highest version and each that is laid out otherwise get
them. Also, for every API: unknown tagged fields in the header and in the body, and many small requests in one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from moldau.broker.dispatch import Route
from moldau.wire.schema import message_class

from .attack import Attack, request
from .requests import (
    Elements,
    Names,
    Path,
    array_paths,
    different,
    encode,
    filled,
    least,
    same,
    served,
    shape_versions,
    unknown_tags,
    whole,
)
from .target import Target

MB = 1_000_000
QUICK_LEAST_BYTES = 2 * MB
LEAST_BYTES = (1 * MB, 16 * MB, 100 * MB)
SAME_COUNTS = (1_000, 100_000)
DIFFERENT_BYTES = 2 * MB
PIPELINED = 20_000
TAGS = 52_000_000
TAGS_QUICK = 1_000_000

MAKES = ("CreateTopics", "CreatePartitions", "OffsetCommit", "InitProducerId", "JoinGroup")
"""APIs that make something of any name."""
CHANGES = (
    "DeleteTopics",
    "DeleteGroups",
    "DeleteRecords",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "OffsetDelete",
    "TxnOffsetCommit",
    "WriteTxnMarkers",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "UnregisterBroker",
    "AlterReplicaLogDirs",
    "AlterPartitionReassignments",
    "ConsumerGroupHeartbeat",
    *MAKES,
)
"""APIs that change what is named. After such an attack the broker is replaced."""


def on_arrays() -> Iterator[Attack]:
    for route in served().values():
        for version in versions_of(route):
            struct = message_class("request", route.api_key, version)
            for path in array_paths(struct):
                yield from _on_array(route, version, path)


def versions_of(route: Route) -> list[int]:
    return shape_versions(route.name, route.min_version, route.max_version)


def _on_array(route: Route, version: int, path: Path) -> Iterator[Attack]:
    where = f"{route.name} v{version} {'.'.join(path)}"
    is_newest = version == route.max_version
    is_outermost = version in (route.min_version, route.max_version)
    for total_bytes in (QUICK_LEAST_BYTES, *LEAST_BYTES):
        if total_bytes == QUICK_LEAST_BYTES and not is_newest:
            continue
        if total_bytes > MB and not is_outermost:
            continue
        make = partial(_full, route, version, path, least(total_bytes))
        yield Attack(
            f"{where}, least: {total_bytes // MB} MB",
            request(route.name, version, make),
            is_quick=total_bytes == QUICK_LEAST_BYTES,
        )
    for count in SAME_COUNTS:
        make = partial(_full_of_same, route, version, path, count)
        yield Attack(
            f"{where}, same: {count:,}",
            request(route.name, version, make),
            is_quick=is_newest and count == max(SAME_COUNTS),
            spoils=route.name in CHANGES,
        )
    make = partial(_full, route, version, path, different(DIFFERENT_BYTES))
    yield Attack(
        f"{where}, different: {DIFFERENT_BYTES // MB} MB",
        request(route.name, version, make),
        spoils=route.name in MAKES,
    )


def array_frame(route: Route, version: int, path: Path, names: Names, elements: Elements) -> bytes:
    """The whole request; what tests use."""
    return whole(route.api_key, version, filled(route.name, version, path, names, elements))


def _full(route: Route, version: int, path: Path, elements: Elements, target: Target) -> bytes:
    return array_frame(route, version, path, target.names, elements)


def _full_of_same(route: Route, version: int, path: Path, count: int, target: Target) -> bytes:
    return array_frame(route, version, path, target.names, same(count, target.names))


def on_tagged_fields() -> Iterator[Attack]:
    """Only the newest version: how tagged fields are laid out never changes."""
    for route in served().values():
        struct = message_class("request", route.api_key, route.max_version)
        if not struct.__flexible__:
            continue
        for count in (TAGS_QUICK, TAGS):
            size = f"{count // MB} M unknown tagged fields"
            for place, make in (("header", _tags_in_header), ("body", _tags_in_body)):
                yield Attack(
                    f"{route.name} v{route.max_version}, {size} in the {place}",
                    request(route.name, route.max_version, partial(make, route, count)),
                    is_quick=count == TAGS_QUICK and route.name in ("Metadata", "Fetch", "Produce"),
                    spoils=route.name in CHANGES,
                )


def _tags_in_header(route: Route, count: int, target: Target) -> bytes:
    data = filled(route.name, route.max_version, (), target.names, least(0))
    return whole(route.api_key, route.max_version, data, tags=unknown_tags(count))


def _tags_in_body(route: Route, count: int, target: Target) -> bytes:
    data = filled(route.name, route.max_version, (), target.names, least(0))
    return whole(route.api_key, route.max_version, data[:-1] + unknown_tags(count))


def pipelines() -> Iterator[Attack]:
    """Many small requests in one write."""
    for route in served().values():
        make = partial(_small_many_times, route)
        yield Attack(
            f"{route.name} v{route.max_version}, {PIPELINED:,} pipelined",
            request(route.name, route.max_version, make, answers=PIPELINED),
            spoils=route.name in CHANGES,
        )


def _small_many_times(route: Route, target: Target) -> bytes:
    data = filled(route.name, route.max_version, (), target.names, least(0))
    return whole(route.api_key, route.max_version, data) * PIPELINED


def empty_request(route: Route, version: int) -> bytes:
    """Nothing but defaults."""
    return whole(route.api_key, version, encode(message_class("request", route.api_key, version), {}))
