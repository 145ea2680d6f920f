"""A follower's side of Fetch by hand: requests for thousands of partitions, answers whose records stay where they are.

Versions 13 to 18, which are of one layout here: topics by id; who fetches is a tagged field from 15 (KIP-903), and
the first one before. Left out of requests are isolation (followers read everything), rack, directory ids and high
watermarks (KRaft's own log has them); answers' endpoints of new leaders are passed over, since brokers know each other.

Requests are the bytes of the compiled writer in half of its time; answers say what kio says. Whatever the bytes are,
parsing ends in a value or in `WireError`, and allocates only for what is really there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from moldau.wire.primitives import UVARINTS, WireError, pack_tagged_fields, read_uvarint, skip_tagged_fields

REPLICA_FETCH_MIN_VERSION: Final = 13
REPLICA_FETCH_MAX_VERSION: Final = 18
REPLICA_STATE_FROM: Final = 15

_REQUEST: Final = Struct(
    ">iiibii"
)  # longest wait, least and most bytes, isolation level, session id and epoch
_OLD_REPLICA: Final = Struct(">i")
_REPLICA_STATE: Final = Struct(">iqx")  # id, broker epoch
_WANTED: Final = Struct(">iiqiqix")
_RESPONSE: Final = Struct(">ihi")  # throttle time, error code, session id
_PARTITION: Final = Struct(">ihqqqBi")  # with no aborted transactions, and the preferred read replica
_PARTITION_HEAD: Final = Struct(">ihqqq")
_EPOCH_END: Final = Struct(">iq")
_LEADER: Final = Struct(">ii")
_TOPIC_ID_BYTES: Final = 16
_ABORTED_BYTES: Final = 16
_NO_RACK: Final = b"\1"
_DIVERGING_EPOCH, _CURRENT_LEADER = 0, 1  # tags
_UNKNOWN: Final = (-1, -1)


class WantedPartition(NamedTuple):
    """A partition in a follower's fetch. A plain tuple will do where every microsecond counts."""

    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class ReplicaFetched(NamedTuple):
    """A partition in the answer. Its records are `frame[records_start:records_stop]`."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None  # epoch, end offset
    current_leader: tuple[int, int] | None  # leader id, leader epoch
    records_start: int
    records_stop: int


class ReplicaFetchResponse(NamedTuple):
    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[ReplicaFetched]


def pack_replica_fetch(
    version: int,
    replica_id: int,
    broker_epoch: int,
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    topics: Sequence[tuple[bytes, Sequence[tuple[int, int, int, int, int, int]]]],
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = (),
) -> bytes:
    """The body of a request. Topics are given by the 16 bytes of their ids, partitions as `WantedPartition`s."""
    out: list[bytes] = []
    if version < REPLICA_STATE_FROM:
        out.append(_OLD_REPLICA.pack(replica_id))
    out += (
        _REQUEST.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch),
        UVARINTS[len(topics) + 1],
    )
    pack = _WANTED.pack
    for topic_id, partitions in topics:
        out += topic_id, UVARINTS[len(partitions) + 1]
        out += starmap(pack, partitions)
        out.append(b"\0")
    out.append(UVARINTS[len(forgotten) + 1])
    for topic_id, indexes in forgotten:
        out += topic_id, UVARINTS[len(indexes) + 1], Struct(f">{len(indexes)}ix").pack(*indexes)
    out += _NO_RACK, _tags_of_request(version, replica_id, broker_epoch)
    return b"".join(out)


def _tags_of_request(version: int, replica_id: int, broker_epoch: int) -> bytes:
    if version < REPLICA_STATE_FROM:
        return b"\0"
    return pack_tagged_fields([(1, _REPLICA_STATE.pack(replica_id, broker_epoch))])


def parse_fetch_response(frame: memoryview, position: int, version: int) -> ReplicaFetchResponse:
    """The body of an answer, from `position` to the end of its frame."""
    if not REPLICA_FETCH_MIN_VERSION <= version <= REPLICA_FETCH_MAX_VERSION:
        raise WireError(f"Fetch version {version} is not a follower's")
    try:
        throttle_ms, error_code, session_id = _RESPONSE.unpack_from(frame, position)
        topics, position = read_uvarint(frame, position + _RESPONSE.size)
        partitions: list[ReplicaFetched] = []
        for _ in range(topics - 1):
            topic_id = bytes(frame[position : position + _TOPIC_ID_BYTES])
            count, position = read_uvarint(frame, position + _TOPIC_ID_BYTES)
            position = _parse_partitions(frame, position, topic_id, count - 1, partitions)
            position = skip_tagged_fields(frame, position)
        skip_tagged_fields(frame, position)
    except (StructError, IndexError):
        raise WireError("FetchResponse ends too early") from None
    return ReplicaFetchResponse(throttle_ms, error_code, session_id, partitions)


def _parse_partitions(
    frame: memoryview, position: int, topic_id: bytes, count: int, out: list[ReplicaFetched]
) -> int:
    stop = len(frame)
    make = tuple.__new__  # half the time of the class's own
    for _ in range(count):
        index, error, high_watermark, stable, log_start, aborted, _replica = _PARTITION.unpack_from(
            frame, position
        )
        if aborted <= 1:  # null or empty
            position += _PARTITION.size
        else:
            position = _skip_aborted(frame, position + _PARTITION_HEAD.size) + 4
        length = frame[position]
        if length < 0x80:
            start = position + 1
        else:
            length, start = read_uvarint(frame, position)
        position = records_stop = start + length - 1 if length else start
        if position >= stop:
            raise WireError("records reach past the end of the answer")
        if frame[position]:
            diverging, leader, position = _parse_tags(frame, position)
        else:
            diverging = leader = None
            position += 1
        values = (
            topic_id,
            index,
            error,
            high_watermark,
            stable,
            log_start,
            diverging,
            leader,
            start,
            records_stop,
        )
        out.append(make(ReplicaFetched, values))
    return position


def _skip_aborted(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    for _ in range(count - 1):
        position = skip_tagged_fields(frame, position + _ABORTED_BYTES)
    return position


def _parse_tags(
    frame: memoryview, position: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    """Diverging epoch and current leader, where they are told, and the position after all tagged fields."""
    after = skip_tagged_fields(frame, position)
    diverging = leader = None
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == _DIVERGING_EPOCH:
            diverging = _pair(_EPOCH_END, frame[position : position + size])
        elif tag == _CURRENT_LEADER:
            leader = _pair(_LEADER, frame[position : position + size])
        position += size
    return diverging, leader, after


def _pair(layout: Struct, value: memoryview) -> tuple[int, int] | None:
    first, second = layout.unpack_from(value)
    return None if (first, second) == _UNKNOWN else (first, second)
