"""A follower's Fetch by hand: the compiled writer's requests, kio's reading of answers, no surprise from bad bytes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import store
from moldau.wire.codec import decode_response, encode_request, encode_response
from moldau.wire.fetch import FETCH, FetchedPartition, pack_fetch_response
from moldau.wire.frames import parse_response_header
from moldau.wire.primitives import WireError
from moldau.wire.replica_fetch import (
    REPLICA_FETCH_MAX_VERSION,
    REPLICA_FETCH_MIN_VERSION,
    ReplicaFetchResponse,
    WantedPartition,
    pack_replica_fetch,
    parse_fetch_response,
)
from moldau.wire.schema import message_class

from .instances import instance

VERSIONS = range(REPLICA_FETCH_MIN_VERSION, REPLICA_FETCH_MAX_VERSION + 1)
GOLDEN = [e for e in store.load() if e.api == "Fetch" and e.version in VERSIONS]


def as_kio_has_it(message: Any) -> tuple[Any, ...]:
    partitions = [
        (
            (topic.topic_id or UUID(int=0)).bytes,
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            pair(part.diverging_epoch.epoch, part.diverging_epoch.end_offset),
            pair(part.current_leader.leader_id, part.current_leader.leader_epoch),
            bytes(part.records or b""),
        )
        for topic in message.responses
        for part in topic.partitions
    ]
    throttle_ms = round(message.throttle_time.total_seconds() * 1000)
    return throttle_ms, message.error_code, message.session_id, partitions


def pair(first: int, second: int) -> tuple[int, int] | None:
    return None if (first, second) == (-1, -1) else (first, second)


def as_parsed(frame: memoryview, parsed: ReplicaFetchResponse) -> tuple[Any, ...]:
    partitions = [
        (*part[:8], bytes(frame[part.records_start : part.records_stop])) for part in parsed.partitions
    ]
    return (*parsed[:3], partitions)


@pytest.mark.parametrize("exchange", GOLDEN, ids=lambda e: e.title)
def test_kafkas_answers_are_read_as_kio_reads_them(exchange: store.Exchange) -> None:
    frame = memoryview(exchange.response)
    _, position = parse_response_header(frame, FETCH, exchange.version)
    parsed = parse_fetch_response(frame, position, exchange.version)
    message = decode_response(FETCH, exchange.version, frame, position)
    assert as_parsed(frame, parsed) == as_kio_has_it(message)


def test_kafkas_answers_are_there() -> None:
    assert {exchange.version for exchange in GOLDEN} >= {16, 17}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(40))
def test_any_answer_is_read_as_kio_reads_it(version: int, seed: int) -> None:
    message = instance(message_class("response", FETCH, version), random.Random(seed))
    body = memoryview(encode_response(FETCH, version, message))
    frame = memoryview(b"before" + bytes(body))
    assert as_parsed(frame, parse_fetch_response(frame, 6, version)) == as_kio_has_it(
        decode_response(FETCH, version, body, 0)
    )


int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
fetched = st.builds(
    FetchedPartition,
    partition=st.integers(0, 1000),
    error_code=st.sampled_from([0, 1, 3, 6, 74, 75]),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    diverging_epoch=st.none() | st.tuples(int32, int64),
    preferred_read_replica=st.just(-1),
    current_leader=st.none() | st.tuples(int32, int32),
    records=st.none() | st.sampled_from([b"", b"x", b"y" * 126, b"y" * 127, b"z" * 20_000]),
)


@given(
    st.sampled_from(VERSIONS),
    st.tuples(int32, st.sampled_from([0, 70, 71]), int32),
    st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.lists(fetched, max_size=4)), max_size=4),
)
def test_what_our_leader_writes_our_follower_reads(
    version: int, session: tuple[int, int, int], topics: list[tuple[bytes, list[FetchedPartition]]]
) -> None:
    frame = memoryview(b"".join(map(bytes, pack_fetch_response(1, version, *session, topics))))[4:]  # type: ignore[arg-type]
    _, position = parse_response_header(frame, FETCH, version)
    expected = [
        (
            topic_id,
            *part[:5],
            part.diverging_epoch and pair(*part.diverging_epoch),
            part.current_leader and pair(*part.current_leader),
            part.records or b"",
        )
        for topic_id, parts in topics
        for part in parts
    ]
    assert as_parsed(frame, parse_fetch_response(frame, position, version)) == (*session, expected)


def an_answer(version: int = 17) -> bytes:
    parts = [
        FetchedPartition(0, 0, 5, 5, 0, records=b"x" * 200),
        FetchedPartition(1, 6, current_leader=(2, 3), diverging_epoch=(4, 5), aborted=[(1, 2)]),
    ]
    topics = [(bytes(range(16)), parts), (bytes(16), parts)]
    return b"".join(map(bytes, pack_fetch_response(1, version, 0, 0, 9, topics)))[9:]  # type: ignore[arg-type]


def test_an_answer_that_is_cut_anywhere_is_refused() -> None:
    whole = an_answer()
    parse_fetch_response(memoryview(whole), 0, 17)
    for length in range(len(whole)):
        with pytest.raises(WireError):
            parse_fetch_response(memoryview(whole)[:length], 0, 17)


@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 10_000), st.integers(0, 255))
def test_bytes_that_are_changed_end_in_an_answer_or_in_an_error(
    first: int, one: int, second: int, other: int
) -> None:
    changed = bytearray(an_answer())
    changed[first % len(changed)] = one
    changed[second % len(changed)] = other
    try:
        parsed = parse_fetch_response(memoryview(changed), 0, 17)
    except WireError:
        return
    assert all(0 <= part.records_start <= part.records_stop <= len(changed) for part in parsed.partitions)


def test_a_lying_count_allocates_nothing() -> None:
    with pytest.raises(WireError):
        parse_fetch_response(memoryview(bytes(10) + b"\xff\xff\xff\xff\x0f"), 0, 17)


def test_versions_of_consumers_are_refused() -> None:
    with pytest.raises(WireError):
        parse_fetch_response(memoryview(bytes(100)), 0, 12)


WANTED = [WantedPartition(index, 3, 1000 + index, 2, 10, 1 << 20) for index in range(300)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [0, 1, 3])
@pytest.mark.parametrize("forgotten", [0, 1, 130])
def test_a_request_is_the_compiled_writers(version: int, topics: int, forgotten: int) -> None:
    asked = [(UUID(int=topic + 7).bytes, WANTED[: 1 + topic * 140]) for topic in range(topics)]
    dropped = [(UUID(int=topic + 90).bytes, range(topic)) for topic in range(forgotten)]
    message = SimpleNamespace(
        replica_id=4,
        replica_state=SimpleNamespace(replica_id=4, replica_epoch=12345678901),
        max_wait=500,
        min_bytes=1,
        max_bytes=10 << 20,
        isolation_level=0,
        session_id=17,
        session_epoch=-1,
        topics=[
            SimpleNamespace(
                topic_id=topic_id,
                partitions=[
                    SimpleNamespace(
                        partition=one.partition,
                        current_leader_epoch=one.leader_epoch,
                        fetch_offset=one.fetch_offset,
                        last_fetched_epoch=one.last_fetched_epoch,
                        log_start_offset=one.log_start_offset,
                        partition_max_bytes=one.max_bytes,
                    )
                    for one in wanted
                ],
            )
            for topic_id, wanted in asked
        ],
        forgotten_topics_data=[
            SimpleNamespace(topic_id=topic_id, partitions=tuple(indexes)) for topic_id, indexes in dropped
        ],
        rack_id="",
    )
    body = pack_replica_fetch(
        version,
        4,
        12345678901,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=17,
        session_epoch=-1,
        topics=asked,
        forgotten=dropped,
    )
    assert body == encode_request(FETCH, version, message)
