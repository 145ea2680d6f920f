"""Fetch requests and answers for one partition, as bytes.

Versions 12 to 17: topics by name in 12, by id from 13 on. The answer's few fields are read by hand, since the codec of
`wire` would copy the records, which here stay where the socket put them. Every length is checked against the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from struct import Struct
from struct import error as StructError
from types import SimpleNamespace
from typing import Final
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.wire.codec import encode_request_frame
from moldau.wire.primitives import WireError, read_uvarint, skip_tagged_fields

FETCH: Final = 1
VERSION_MIN: Final = 12
VERSION_MAX: Final = 17
TOPIC_IDS_FROM: Final = 13

WAIT_MS: Final = 500
_CONSUMER: Final = SimpleNamespace(replica_id=-1, replica_epoch=-1)
_HEAD: Final = Struct(">ihi")  # throttle time, error code, session id
_PARTITION: Final = Struct(
    ">ihqqq"
)  # index, error code, high watermark, last stable offset, log start offset
_ABORTED: Final = Struct(">qq")
_INT32: Final = Struct(">i")
_NOTHING: Final = memoryview(b"")
_ABORTED_BYTES_MIN: Final = _ABORTED.size + 1


@dataclass(frozen=True, slots=True)
class Answer:
    error: ErrorCode
    throttle_ms: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of the aborted transactions that reach into these records."""
    records: memoryview = _NOTHING


def fetch_request(
    version: int,
    correlation_id: int,
    client_id: str,
    topic: str,
    topic_id: UUID | None,
    partition: int,
    leader_epoch: int,
    offset: int,
    bytes_max: int,
    read_committed: bool,
) -> bytes:
    """A whole frame. It opens no session: one partition at a time needs none."""
    wanted = SimpleNamespace(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
        replica_directory_id=None,
        high_watermark=2**63 - 1,
    )
    request = SimpleNamespace(
        cluster_id=None,
        replica_id=-1,
        replica_state=_CONSUMER,
        max_wait=timedelta(milliseconds=WAIT_MS),
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=(SimpleNamespace(topic=topic, topic_id=topic_id, partitions=(wanted,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return encode_request_frame(FETCH, version, correlation_id, client_id, request)


def parse_answer(version: int, frame: memoryview, position: int, partition: int) -> Answer:
    """From the body's position on. WireError for what is no answer to a request for one partition."""
    try:
        return _parse(version, frame, position, partition)
    except (StructError, IndexError):
        raise WireError("the Fetch answer ends too early") from None
    except ValueError as reason:  # a number that is no error code
        raise WireError(f"the Fetch answer cannot be read: {reason}") from None


def _parse(version: int, frame: memoryview, position: int, partition: int) -> Answer:
    throttle_ms, error, _ = _HEAD.unpack_from(frame, position)
    topics, position = read_uvarint(frame, position + _HEAD.size)
    if error or topics <= 1:
        return Answer(ErrorCode(error), throttle_ms)
    if version >= TOPIC_IDS_FROM:
        position += 16
    else:
        name_length, position = read_uvarint(frame, position)
        position += max(0, name_length - 1)
    partitions, position = read_uvarint(frame, position)
    if topics != 2 or partitions != 2:
        raise WireError("the Fetch answer is not about one partition")
    index, error, high_watermark, stable, log_start = _PARTITION.unpack_from(frame, position)
    if index != partition:
        raise WireError(f"the Fetch answer is about partition {index}, not {partition}")
    aborted, position = _parse_aborted(frame, position + _PARTITION.size)
    _INT32.unpack_from(
        frame, position
    )  # the preferred read replica, which is only for those who name their rack
    length, position = read_uvarint(frame, position + _INT32.size)
    length = max(0, length - 1)
    if length > len(frame) - position:
        raise WireError(f"{length} bytes of records in an answer of {len(frame)}")
    return Answer(
        ErrorCode(error),
        throttle_ms,
        high_watermark,
        stable,
        log_start,
        aborted,
        frame[position : position + length],
    )


def _parse_aborted(frame: memoryview, position: int) -> tuple[tuple[tuple[int, int], ...], int]:
    count, position = read_uvarint(frame, position)
    count = max(0, count - 1)
    if count > (len(frame) - position) // _ABORTED_BYTES_MIN:
        raise WireError(f"{count} aborted transactions in {len(frame) - position} bytes")
    found = []
    for _ in range(count):
        found.append(_ABORTED.unpack_from(frame, position))
        position = skip_tagged_fields(frame, position + _ABORTED.size)
    return tuple(found), position
