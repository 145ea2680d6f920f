"""Produce by hand says what kio says, and answers every lie with WireError."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.codec import decode_request, encode_request, encode_response_frame
from moldau.wire.primitives import WireError
from moldau.wire.produce import (
    PRODUCE,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    pack_lone_produced,
    pack_produce_response,
    parse_lone_batch,
    parse_produce,
)
from moldau.wire.schema import message_class

from .instances import instance

VERSIONS = range(3, 14)
HEAD = b"header"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_parsed(request: Any, frame: bytes) -> tuple[Any, ...]:
    """kio's request with the records' bytes, as `with_bytes` makes it of ours."""
    topics = [
        (topic_of(topic), [(partition.index, partition.records) for partition in topic.partition_data])
        for topic in request.topic_data
    ]
    return request.transactional_id, request.acks, request.timeout // timedelta(milliseconds=1), topics


def topic_of(topic: Any) -> str | bytes:
    if hasattr(topic, "topic_id"):
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    return str(topic.name)


def with_bytes(parsed: ProduceRequest, frame: bytes) -> tuple[Any, ...]:
    transactional_id, acks, timeout_ms, topics = parsed
    return (
        transactional_id,
        acks,
        timeout_ms,
        [
            (topic, [(p, None if a == -1 else frame[a:b]) for p, a, b in partitions])
            for topic, partitions in topics
        ],
    )


def one_partition(version: int, records: bytes | None, transactional_id: str | None = None) -> Any:
    struct = message_class("request", PRODUCE, version)
    topic_struct = struct.__annotations__["topic_data"].__args__[0]
    partition_struct = topic_struct.__annotations__["partition_data"].__args__[0]
    name = {"topic_id": UUID(int=7)} if version >= 13 else {"name": "orders"}
    partition = partition_struct(index=3, records=records)
    topic = topic_struct(**name, partition_data=(partition,))
    timeout = timedelta(milliseconds=30_000)
    return struct(transactional_id=transactional_id, acks=-1, timeout=timeout, topic_data=(topic,))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 70_000, None])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_the_common_shape_is_parsed_as_kio_parses_it(
    version: int, size: int | None, transactional_id: str | None
) -> None:
    request = one_partition(
        version, None if size is None else random.Random(size).randbytes(size), transactional_id
    )
    frame = HEAD + encode_request(PRODUCE, version, request)
    parsed = parse_produce(memoryview(bytearray(frame)), len(HEAD), version)
    assert with_bytes(parsed, frame) == as_parsed(request, frame)
    lone = parse_lone_batch(memoryview(bytearray(frame)), len(HEAD), version)
    if size is None or transactional_id is not None:
        assert lone is None
    else:
        assert lone is not None
        acks, timeout_ms, topic, *batch = lone
        assert (None, acks, timeout_ms, [(topic, [tuple(batch)])]) == parsed


@pytest.mark.parametrize("version", VERSIONS)
def test_any_request_is_parsed_as_kio_parses_it(version: int) -> None:
    chance = random.Random(version)
    for _ in range(200):
        request = instance(message_class("request", PRODUCE, version), chance)
        frame = HEAD + encode_request(PRODUCE, version, request)
        parsed = parse_produce(memoryview(bytearray(frame)), len(HEAD), version)
        assert with_bytes(parsed, frame) == as_parsed(request, frame)


@pytest.mark.parametrize("version", range(9, 14))
def test_unknown_tagged_fields_are_skipped(version: int) -> None:
    body = encode_request(PRODUCE, version, one_partition(version, b"records"))
    assert body.endswith(b"\0\0\0")
    tagged = body[:-3] + b"\1\5\2xy" + b"\2\1\0\7\1z" + b"\1\x63\0"
    parsed = parse_produce(memoryview(bytearray(tagged)), 0, version)
    start, stop = parsed[3][0][1][0][1:]
    assert tagged[start:stop] == b"records"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused_and_bytes_after_it_are_ignored(version: int) -> None:
    for request in one_partition(version, b"some records", "tx"), one_partition(version, b"some records"):
        body = encode_request(PRODUCE, version, request)
        for stop in range(len(body)):
            with pytest.raises(WireError):
                parse_produce(memoryview(body)[:stop], 0, version)
        assert parse_produce(memoryview(body + b"\0"), 0, version) == parse_produce(
            memoryview(body), 0, version
        )


@given(
    version=st.sampled_from(VERSIONS),
    seed=st.integers(0, 20),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_request_gives_a_request_within_its_frame_or_is_refused(
    version: int, seed: int, edits: list[tuple[float, int]]
) -> None:
    request = instance(message_class("request", PRODUCE, version), random.Random(seed))
    body = bytearray(encode_request(PRODUCE, version, request))
    for place, byte in edits:
        body[int(place * (len(body) - 1))] = byte
    frame = memoryview(body)
    try:
        parsed = parse_produce(frame, 0, version)
    except WireError:
        assert parse_lone_batch(frame, 0, version) is None
        with pytest.raises(WireError):
            decode_request(PRODUCE, version, frame, 0)
        return
    assert with_bytes(parsed, bytes(body)) == as_parsed(
        decode_request(PRODUCE, version, frame, 0), bytes(body)
    )


def kio_frame(version: int, topics: list[ProducedTopic], throttle_ms: int, endpoints: list[Any]) -> bytes:
    response = message_class("response", PRODUCE, version)
    topic_struct = response.__annotations__["responses"].__args__[0]
    partition_struct = topic_struct.__annotations__["partition_responses"].__args__[0]

    def partition(p: Any) -> Any:
        values: dict[str, Any] = {
            "index": p[0],
            "error_code": p[1],
            "base_offset": p[2],
            "log_append_time": None if p[3] == -1 else EPOCH + timedelta(milliseconds=p[3]),
        }
        if version >= 5:
            values["log_start_offset"] = p[4]
        if version >= 8:
            error_struct = partition_struct.__annotations__["record_errors"].__args__[0]
            values["record_errors"] = tuple(
                error_struct(batch_index=i, batch_index_error_message=message) for i, message in p[5]
            )
            values["error_message"] = p[6]
        if version >= 10 and p[7] is not None:
            leader_struct = partition_struct.__annotations__["current_leader"]
            values["current_leader"] = leader_struct(leader_id=p[7][0], leader_epoch=p[7][1])
        return partition_struct(**values)

    def topic(name: str | bytes, partitions: Any) -> Any:
        key: dict[str, Any] = {"topic_id": UUID(bytes=name)} if isinstance(name, bytes) else {"name": name}
        return topic_struct(**key, partition_responses=tuple(partition(p) for p in partitions))

    hints: dict[str, Any] = {}
    if version >= 10:
        endpoint_struct = response.__annotations__["node_endpoints"].__args__[0]
        hints["node_endpoints"] = tuple(
            endpoint_struct(node_id=n, host=host, port=port, rack=rack) for n, host, port, rack in endpoints
        )
    message = response(
        responses=tuple(topic(name, partitions) for name, partitions in topics),
        throttle_time=timedelta(milliseconds=throttle_ms),
        **hints,
    )
    return encode_response_frame(PRODUCE, version, 77, message)


RESULTS: dict[str, ProducedPartition] = {
    "stored": ProducedPartition(0, 0, 12_345, -1, 17),
    "stored with append time": ProducedPartition(5, 0, 12_345, 1_700_000_000_123, 17),
    "refused": ProducedPartition(0, 3),
    "refused with a message": ProducedPartition(0, 87, error_message="Unsupported 語"),
    "records refused": ProducedPartition(
        1, 87, record_errors=[(0, "no key"), (3, None)], error_message="invalid"
    ),
    "moved": ProducedPartition(2, 6, current_leader=(4, 9)),
    "moved, nobody knows where": ProducedPartition(2, 6, current_leader=(-1, -1)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("name", ["orders", "n" * 126, "n" * 127, "n" * 249])
def test_the_answer_for_one_partition_is_kios(version: int, result: str, name: str) -> None:
    topics: list[ProducedTopic] = [(UUID(int=99).bytes if version >= 13 else name, [RESULTS[result]])]
    assert pack_produce_response(77, version, topics, 250) == kio_frame(version, topics, 250, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["orders", "n" * 126, "n" * 127, "n" * 249])
def test_the_answer_for_a_lone_batch_is_kios(version: int, name: str) -> None:
    topic = UUID(int=99).bytes if version >= 13 else name
    stored = RESULTS["stored with append time"]
    packed = pack_lone_produced(
        77, version, topic, 5, stored.base_offset, stored.append_time_ms, stored.log_start_offset
    )
    assert packed == kio_frame(version, [(topic, [stored])], 0, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_for_many_partitions_is_kios(version: int) -> None:
    names = [UUID(int=99).bytes, UUID(int=98).bytes] if version >= 13 else ["a", "b" * 200]
    topics: list[ProducedTopic] = [(names[0], list(RESULTS.values())), (names[1], list(RESULTS.values())[:2])]
    endpoints = [(4, "broker-4.example", 9092, "rack-a"), (5, "broker-5.example", 9093, None)]
    assert pack_produce_response(77, version, topics, 0, endpoints) == kio_frame(
        version, topics, 0, endpoints
    )
    assert pack_produce_response(77, version, [], 0) == kio_frame(version, [], 0, [])
