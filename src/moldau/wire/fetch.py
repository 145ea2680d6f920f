"""The Fetch response by hand: the bytes around the records, and the records by reference.

Versions 4 to 18: log start offset from 5, sessions from 7, preferred read replica from 11, flexible from 12, topic ids
instead of names from 13, endpoints of new leaders from 16. The answer is a list of pieces: bytes to send, and between
them the payloads as they were given (a slice of a segment, say), for the connection to read or to send by `sendfile`.
The size at the front counts them in. The most common shape (one topic, one partition) has a path of its own.

Equal to kio's writer, which the tests check. The snapshot id of KRaft's own log is left out. Requests are read by kio.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, Protocol

from moldau.runtime.line import Slices, whole
from moldau.wire.primitives import (
    UVARINTS,
    NodeEndpoint,
    pack_node_endpoints,
    pack_string,
    pack_tagged_fields,
    pack_uvarint,
)

FETCH: Final = 1
SESSIONS_FROM: Final = 7
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
LEADER_HINTS_FROM: Final = 16  # KIP-951

PARTITIONS_PER_PAUSE: Final = 32
JOINED_RECORDS_BYTES_MAX: Final = 4096  # longer records are not worth copying into the piece before them


class Payload(Protocol):
    """Records that are not in memory; only their length matters here."""

    @property
    def length(self) -> int: ...


Records = bytes | memoryview | Payload | None


class FetchedPartition(NamedTuple):
    """A partition's part of the answer. A plain tuple of the same length will do where every microsecond counts."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None  # producer id, first offset
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None  # epoch, end offset
    current_leader: tuple[int, int] | None = None  # leader id, leader epoch
    records: Records = b""


Fetched = tuple[
    int, int, int, int, int, Sequence[tuple[int, int]] | None, int, tuple[int, int] | None, tuple[int, int] | None,
    Records,
]  # fmt: skip
FetchedTopic = tuple[str | bytes, Sequence[Fetched]]  # name, or the 16 bytes of the topic id from version 13
Piece = bytes | memoryview | Payload

_IN_MEMORY: Final = (bytes, memoryview)  # a tuple: isinstance takes three times as long with a union

_SIZE: Final = Struct(">i")
_FRAME: Final = Struct(">ii")  # size, correlation id
_SESSION: Final = Struct(">ihi")  # throttle time, error code, session id
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_PARTITION_V12: Final = Struct(">ihqqqBi")  # with no aborted transactions, and the preferred read replica
_ABORTED: Final = Struct(">qq")
_ABORTED_FLEXIBLE: Final = Struct(">qqx")
_EPOCH_END: Final = Struct(">iqx")
_LEADER: Final = Struct(">iix")
_NO_TAGS_AT_END: Final = b"\0\0\0"  # in the partition, the topic and the response

# One partition of one topic, up to the length of its records: size, correlation id, throttle time, error code, session
# id, topics, topic, partitions, index, error code, high watermark, last stable offset, log start offset, aborted
# transactions (null or none), preferred read replica.
_ONE_BY_ID: Final = Struct(">iixihiB16sBihqqqBi")


@lru_cache(maxsize=128)
def _one_by_name(name_bytes: int) -> Struct:
    return Struct(f">iixihiBB{name_bytes}sBihqqqBi")


def pack_fetch_response(
    correlation_id: int,
    version: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchedTopic],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Piece]:
    """A whole frame: size, header, body, in pieces. `topics` are named as the request named them."""
    packing = packing_fetch_response(
        correlation_id, version, throttle_ms, error_code, session_id, topics, node_endpoints
    )
    return whole(packing)


def packing_fetch_response(
    correlation_id: int,
    version: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchedTopic],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Slices[list[Piece]]:
    """The same, with pauses between partitions."""
    if version >= FLEXIBLE_FROM and len(topics) == 1 and len(topics[0][1]) == 1 and not node_endpoints:
        topic, partitions = topics[0]
        pieces = _pack_one(correlation_id, throttle_ms, error_code, session_id, topic, partitions[0])
        if pieces is not None:
            return pieces
    out = _Pieces(correlation_id, version)
    if version >= SESSIONS_FROM:
        out.put(_SESSION.pack(throttle_ms, error_code, session_id))
    else:
        out.put(_INT32.pack(throttle_ms))
    yield from _put_topics(out, version, topics)
    if version >= FLEXIBLE_FROM:
        out.put(pack_node_endpoints(node_endpoints if version >= LEADER_HINTS_FROM else ()))
    return out.framed()


def _pack_one(
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topic: str | bytes,
    fetched: Fetched,
) -> list[Piece] | None:
    """The answer for one partition without aborted transactions and tagged fields; None for any other."""
    index, code, high_watermark, stable, log_start, aborted, replica, diverging, leader, records = fetched
    if aborted or diverging is not None or leader is not None or records is None:
        return None
    length = len(records) if isinstance(records, _IN_MEMORY) else records.length
    prefix = UVARINTS[length + 1] if length < 255 else pack_uvarint(length + 1)
    no_aborted = 0 if aborted is None else 1
    if isinstance(topic, bytes):
        head = _ONE_BY_ID.pack(
            _ONE_BY_ID.size - 1 + len(prefix) + length, correlation_id, throttle_ms, error_code, session_id, 2, topic,
            2, index, code, high_watermark, stable, log_start, no_aborted, replica,
        )  # fmt: skip
    else:
        name = topic.encode()
        if len(name) > 126:  # its length no longer fits one byte
            return None
        layout = _one_by_name(len(name))
        head = layout.pack(
            layout.size - 1 + len(prefix) + length, correlation_id, throttle_ms, error_code, session_id,
            2, len(name) + 1, name,
            2, index, code, high_watermark, stable, log_start, no_aborted, replica,
        )  # fmt: skip
    if not length:
        return [head + b"\1\0\0\0"]
    if length <= JOINED_RECORDS_BYTES_MAX and isinstance(records, _IN_MEMORY):
        return [b"".join((head, prefix, records, _NO_TAGS_AT_END))]
    return [head + prefix, records, _NO_TAGS_AT_END]


class _Pieces:
    """Collects the answer: bytes are joined until a payload comes, and counted for the size at the front."""

    def __init__(self, correlation_id: int, version: int) -> None:
        self._pieces: list[Piece] = []
        self._joined: list[bytes | memoryview] = [_FRAME.pack(0, correlation_id)]
        self._size = 4
        if version >= FLEXIBLE_FROM:
            self.put(b"\0")

    def put(self, data: bytes | memoryview) -> None:
        self._joined.append(data)
        self._size += len(data)

    def put_records(self, records: Records) -> None:
        """The records after their length, which the caller has put."""
        if isinstance(records, _IN_MEMORY):
            if len(records) <= JOINED_RECORDS_BYTES_MAX:
                self.put(records)
                return
            self._size += len(records)
        elif records is not None and records.length:
            self._size += records.length
        else:
            return
        self._pieces += b"".join(self._joined), records
        self._joined.clear()

    def framed(self) -> list[Piece]:
        if self._joined:
            self._pieces.append(b"".join(self._joined))
        first = self._pieces[0]
        assert isinstance(first, bytes)
        self._pieces[0] = _SIZE.pack(self._size) + first[4:]
        return self._pieces


def _put_topics(out: _Pieces, version: int, topics: Sequence[FetchedTopic]) -> Slices[None]:
    flexible = version >= FLEXIBLE_FROM
    out.put(_count(len(topics), flexible))
    for topic, partitions in topics:
        out.put(topic if isinstance(topic, bytes) else pack_string(topic, flexible))
        out.put(_count(len(partitions), flexible))
        for number, fetched in enumerate(partitions, 1):
            _put_partition(out, version, fetched)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield
        yield
        if flexible:
            out.put(b"\0")


def _put_partition(out: _Pieces, version: int, fetched: Fetched) -> None:
    index, code, high_watermark, stable, log_start, aborted, replica, diverging, leader, records = fetched
    length = -1 if records is None else len(records) if isinstance(records, _IN_MEMORY) else records.length
    if version < FLEXIBLE_FROM:
        head = _PARTITION_V4.pack(index, code, high_watermark, stable)
        if version >= 5:
            head += _INT64.pack(log_start)
        head += _pack_aborted(aborted, False)
        if version >= 11:
            head += _INT32.pack(replica)
        out.put(head + _INT32.pack(length))
        out.put_records(records)
        return
    if aborted:
        head = _PARTITION_V5.pack(index, code, high_watermark, stable, log_start)
        head += _pack_aborted(aborted, True) + _INT32.pack(replica)
    else:
        no_aborted = 0 if aborted is None else 1
        head = _PARTITION_V12.pack(index, code, high_watermark, stable, log_start, no_aborted, replica)
    out.put(head + UVARINTS[length + 1])
    out.put_records(records)
    out.put(b"\0" if diverging is None and leader is None else _pack_tags(diverging, leader))


def _pack_aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return _count(-1, flexible)
    pack = _ABORTED_FLEXIBLE.pack if flexible else _ABORTED.pack
    return _count(len(aborted), flexible) + b"".join([pack(producer, first) for producer, first in aborted])


def _pack_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    fields = []
    if diverging is not None and diverging != (-1, -1):
        fields.append((0, _EPOCH_END.pack(*diverging)))
    if leader is not None and leader != (-1, -1):
        fields.append((1, _LEADER.pack(*leader)))
    return pack_tagged_fields(fields)


def _count(count: int, flexible: bool) -> bytes:
    """The length of an array; -1 for null."""
    return UVARINTS[count + 1] if flexible else _INT32.pack(count)
