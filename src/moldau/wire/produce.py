"""Produce by hand: the request without copying a record, the response with one pack where it can.

Versions 3 to 13: flexible from 9, topic ids instead of names from 13. A request's record sets are named by where they
lie in its frame, so that the log can check them, write offsets into them and append them from the receive buffer.
The most common shape (one topic, one partition; librdkafka sends no other) has ways of its own: `parse_lone_batch` and
`pack_lone_produced`.

Equal to kio's codecs, which the tests check; like them it answers malformed bytes with WireError only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from moldau.base.limits import REQUEST_ELEMENTS_MAX
from moldau.runtime.line import Slices, whole
from moldau.wire.primitives import (
    UVARINTS,
    NodeEndpoint,
    WireError,
    pack_node_endpoints,
    pack_string,
    pack_tagged_fields,
    read_uvarint,
    skip_tagged_fields,
)

PRODUCE: Final = 0
FLEXIBLE_FROM: Final = 9
LEADER_HINTS_FROM: Final = 10  # KIP-951
TOPIC_IDS_FROM: Final = 13

NULL_RECORDS: Final = -1
STEPS_PER_PAUSE_MASK: Final = 63

PartitionRecords = tuple[
    int, int, int
]  # partition, start and stop of its records in the frame; start -1: null
TopicRecords = tuple[
    str | bytes, list[PartitionRecords]
]  # name, or the 16 bytes of the topic id from version 13
LoneBatch = tuple[int, int, str | bytes, int, int, int]  # acks, timeout_ms, topic, partition, bounds
ProduceRequest = tuple[str | None, int, int, list[TopicRecords]]  # transactional id, acks, timeout_ms, topics


class ProducedPartition(NamedTuple):
    """A partition's part of the answer. A plain tuple of the same length will do where every microsecond counts."""

    partition: int
    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # index in the batch, message
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None  # leader id, leader epoch


Produced = tuple[
    int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, tuple[int, int] | None
]
ProducedTopic = tuple[str | bytes, Sequence[Produced]]


# -- the request

_LEGACY_HEAD: Final = Struct(
    ">hhiih"
)  # no transactional id, acks, timeout_ms, topics, length of the topic's name
_LEGACY_PARTITION: Final = Struct(">iii")  # partitions, index, length of the records
_FLEXIBLE_HEAD: Final = Struct(">BhiBB")
_FLEXIBLE_PARTITION: Final = Struct(">Bi")
_ID_HEAD: Final = Struct(">BhiB16sBi")
_INDEX_AND_SIZE: Final = Struct(">ii")
_INDEX_AND_BYTE: Final = Struct(">iB")
_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def parse_lone_batch(frame: memoryview, position: int, version: int) -> LoneBatch | None:
    """A request for one partition of one topic without a transactional id, which nearly all are; None for any other."""
    try:
        if version < FLEXIBLE_FROM:
            return _parse_lone_legacy(frame, position)
        return _parse_lone_flexible(frame, position, version)
    except (StructError, IndexError, UnicodeDecodeError, WireError):
        return None  # the careful way says whether it is a request at all


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The body of a Produce request, from `position` to the end of its frame."""
    return whole(parsing_produce(frame, position, version))


def parsing_produce(frame: memoryview, position: int, version: int) -> Slices[ProduceRequest]:
    """The same, with pauses between partitions, of which there are REQUEST_ELEMENTS_MAX at most."""
    try:
        if version < FLEXIBLE_FROM:
            return (yield from _parse_legacy(frame, position))
        return (yield from _parse_flexible(frame, position, version))
    except (StructError, IndexError):
        raise WireError("the Produce request ends too early") from None
    except UnicodeDecodeError:
        raise WireError("a name in the Produce request is not UTF-8") from None


def _parse_lone_legacy(frame: memoryview, position: int) -> LoneBatch | None:
    no_transaction, acks, timeout_ms, topics, length = _LEGACY_HEAD.unpack_from(frame, position)
    if no_transaction != -1 or topics != 1 or length < 0:
        return None
    position += 14
    name = str(frame[position : position + length], "utf-8")
    position += length
    partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, position)
    start = position + 12
    if partitions != 1 or size < 0 or start + size != len(frame):
        return None
    return acks, timeout_ms, name, index, start, start + size


def _parse_lone_flexible(frame: memoryview, position: int, version: int) -> LoneBatch | None:
    topic: str | bytes
    if version < TOPIC_IDS_FROM:
        no_transaction, acks, timeout_ms, topics, length = _FLEXIBLE_HEAD.unpack_from(frame, position)
        if not 0 < length < 0x80:
            return None
        position += 8 + length
        topic = str(frame[position - length + 1 : position], "utf-8")
        partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, position)
        position += 5
    else:
        head = _ID_HEAD.unpack_from(frame, position)
        no_transaction, acks, timeout_ms, topics, topic, partitions, index = head
        position += 29
    if no_transaction or topics != 2 or partitions != 2:
        return None
    size = frame[position]
    position += 1
    if size >= 0x80:
        byte = frame[position]
        if byte < 0x80:  # in line, as most record sets have a length of two bytes
            size += (byte - 1) << 7
            position += 1
        else:
            size, position = read_uvarint(frame, position - 1)
    stop = position + size - 1
    # No tagged fields in the partition, the topic and the request: three zero bytes end the frame.
    if not size or stop + 3 != len(frame) or frame[stop] or frame[stop + 1] or frame[stop + 2]:
        return None
    return acks, timeout_ms, topic, index, position, stop


def _parse_legacy(frame: memoryview, position: int) -> Slices[ProduceRequest]:
    transactional_id, position = _read_legacy_string(frame, position, nullable=True)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    count, position = _read_legacy_count(frame, position + 6, element_bytes=6)
    topics: list[TopicRecords] = []
    left = REQUEST_ELEMENTS_MAX
    for _ in range(count):
        name, position = _read_legacy_string(frame, position, nullable=False)
        partition_count, position = _read_legacy_count(frame, position, element_bytes=8)
        left = _left(left, 1 + partition_count)
        partitions = []
        yield
        for number in range(partition_count):
            if number & STEPS_PER_PAUSE_MASK == STEPS_PER_PAUSE_MASK:
                yield
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            position += 8
            partitions.append(_records(frame, index, position, size))
            if size > 0:
                position += size
        topics.append((name or "", partitions))
    _check_end(frame, position)
    return transactional_id, acks, timeout_ms, topics


def _parse_flexible(frame: memoryview, position: int, version: int) -> Slices[ProduceRequest]:
    transactional_id, position = _read_compact_string(frame, position, nullable=True)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    count, position = _read_compact_count(frame, position + 6, element_bytes=3)
    topics: list[TopicRecords] = []
    left = REQUEST_ELEMENTS_MAX
    for _ in range(count):
        topic: str | bytes | None
        if version < TOPIC_IDS_FROM:
            topic, position = _read_compact_string(frame, position, nullable=False)
        else:
            topic = bytes(frame[position : position + 16])
            position += 16
        partition_count, position = _read_compact_count(frame, position, element_bytes=6)
        left = _left(left, 1 + partition_count)
        partitions = []
        yield
        for number in range(partition_count):
            if number & STEPS_PER_PAUSE_MASK == STEPS_PER_PAUSE_MASK:
                yield
            index, size = _INDEX_AND_BYTE.unpack_from(frame, position)
            position += 5
            if size >= 0x80:
                size, position = read_uvarint(frame, position - 1)
            partitions.append(_records(frame, index, position, size - 1))
            if size:
                position += size - 1
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        position = skip_tagged_fields(frame, position)
        topics.append((topic or "", partitions))
    position = skip_tagged_fields(frame, position)
    _check_end(frame, position)
    return transactional_id, acks, timeout_ms, topics


def _left(left: int, count: int) -> int:
    """How many more topics and partitions a request may name."""
    if count > left:
        raise WireError(f"more than {REQUEST_ELEMENTS_MAX} topics and partitions")
    return left - count


def _records(frame: memoryview, index: int, start: int, size: int) -> PartitionRecords:
    if size == -1:
        return index, NULL_RECORDS, NULL_RECORDS
    if not 0 <= size <= len(frame) - start:
        raise WireError(f"{size} bytes of records in {len(frame) - start} bytes")
    return index, start, start + size


def _read_legacy_string(frame: memoryview, position: int, *, nullable: bool) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(frame, position)
    return _string(frame, position + 2, length, nullable)


def _read_compact_string(frame: memoryview, position: int, *, nullable: bool) -> tuple[str | None, int]:
    length, position = read_uvarint(frame, position)
    return _string(frame, position, length - 1, nullable)


def _string(frame: memoryview, start: int, length: int, nullable: bool) -> tuple[str | None, int]:
    if length == -1 and nullable:
        return None, start
    if not 0 <= length <= len(frame) - start:
        raise WireError(f"a string of {length} bytes in {len(frame) - start} bytes")
    return str(frame[start : start + length], "utf-8"), start + length


def _read_legacy_count(frame: memoryview, position: int, *, element_bytes: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(frame, position)
    return _count(frame, position + 4, count, element_bytes)


def _read_compact_count(frame: memoryview, position: int, *, element_bytes: int) -> tuple[int, int]:
    count, position = read_uvarint(frame, position)
    return _count(frame, position, count - 1, element_bytes)


def _count(frame: memoryview, position: int, count: int, element_bytes: int) -> tuple[int, int]:
    if not 0 <= count * element_bytes <= len(frame) - position:
        raise WireError(f"an array of {count} in {len(frame) - position} bytes")
    return count, position


def _check_end(frame: memoryview, position: int) -> None:
    """Bytes after the request are ignored, as Kafka does."""
    if position > len(frame):
        raise WireError("the Produce request ends too early")


# -- the response

_LEGACY_FRAME: Final = Struct(">iii")  # size, correlation id, topics
_FLEXIBLE_FRAME: Final = Struct(">iix")  # size, correlation id
_PARTITION_V3: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_LEADER: Final = Struct(">iix")

# One partition without error details, whole: size, correlation id, topics, topic, partitions, index, error code, base
# offset, append time, log start offset, no record errors, no message, no tagged fields, throttle time.
_ONE_BY_ID: Final = Struct(">iixB16sBihqqqBxxxix")


@lru_cache(maxsize=128)
def _one_by_name(name_bytes: int) -> Struct:
    return Struct(f">iixBB{name_bytes}sBihqqqBxxxix")


def pack_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[ProducedTopic],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """A whole frame: size, header, body. `topics` are named as the request named them."""
    return whole(packing_produce_response(correlation_id, version, topics, throttle_ms, node_endpoints))


def packing_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[ProducedTopic],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Slices[bytes]:
    """The same, with pauses between partitions."""
    if version < FLEXIBLE_FROM:
        return _pack_legacy(correlation_id, version, topics, throttle_ms)
    return _pack_flexible(correlation_id, version, topics, throttle_ms, node_endpoints)


def pack_lone_produced(
    correlation_id: int,
    version: int,
    topic: str | bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int = 0,
) -> bytes:
    """The whole frame for one batch that was appended, which nearly all are."""
    if version >= FLEXIBLE_FROM:
        if isinstance(topic, bytes):
            return _ONE_BY_ID.pack(
                _ONE_BY_ID.size - 4, correlation_id, 2, topic,
                2, index, 0, base_offset, append_time_ms, log_start_offset, 1, throttle_ms,
            )  # fmt: skip
        name = topic.encode()
        if len(name) < 127:  # its length fits one byte
            layout = _one_by_name(len(name))
            return layout.pack(
                layout.size - 4, correlation_id, 2, len(name) + 1, name,
                2, index, 0, base_offset, append_time_ms, log_start_offset, 1, throttle_ms,
            )  # fmt: skip
    produced = (index, 0, base_offset, append_time_ms, log_start_offset, (), None, None)
    return pack_produce_response(correlation_id, version, [(topic, [produced])], throttle_ms)


def _pack_flexible(
    correlation_id: int,
    version: int,
    topics: Sequence[ProducedTopic],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> Slices[bytes]:
    pieces = [UVARINTS[len(topics) + 1]]
    for topic, partitions in topics:
        pieces.append(topic if isinstance(topic, bytes) else pack_string(topic, True))
        pieces.append(UVARINTS[len(partitions) + 1])
        for number, produced in enumerate(partitions):
            if number & STEPS_PER_PAUSE_MASK == STEPS_PER_PAUSE_MASK:
                yield
            _put_partition_flexible(pieces, version, produced)
        pieces.append(b"\0")
    pieces.append(_INT32.pack(throttle_ms))
    pieces.append(pack_node_endpoints(node_endpoints if version >= LEADER_HINTS_FROM else ()))
    body = b"".join(pieces)
    return _FLEXIBLE_FRAME.pack(5 + len(body), correlation_id) + body


def _put_partition_flexible(pieces: list[bytes], version: int, produced: Produced) -> None:
    *numbers, errors, message, leader = produced
    pieces += _PARTITION_V5.pack(*numbers), UVARINTS[len(errors) + 1]
    for batch_index, reason in errors:
        pieces += _INT32.pack(batch_index), pack_string(reason, True), b"\0"
    pieces.append(pack_string(message, True))
    if leader is None or leader == (-1, -1) or version < LEADER_HINTS_FROM:
        pieces.append(b"\0")
    else:
        pieces.append(pack_tagged_fields([(0, _LEADER.pack(*leader))]))


def _pack_legacy(
    correlation_id: int, version: int, topics: Sequence[ProducedTopic], throttle_ms: int
) -> Slices[bytes]:
    pieces: list[bytes] = []
    for topic, partitions in topics:
        yield
        pieces += pack_string(str(topic), False), _INT32.pack(len(partitions))
        for (
            index,
            error_code,
            base_offset,
            append_time_ms,
            log_start_offset,
            errors,
            message,
            _,
        ) in partitions:
            if version < 5:
                pieces.append(_PARTITION_V3.pack(index, error_code, base_offset, append_time_ms))
                continue
            pieces.append(
                _PARTITION_V5.pack(index, error_code, base_offset, append_time_ms, log_start_offset)
            )
            if version < 8:
                continue
            pieces.append(_INT32.pack(len(errors)))
            for batch_index, reason in errors:
                pieces += _INT32.pack(batch_index), pack_string(reason, False)
            pieces.append(pack_string(message, False))
    pieces.append(_INT32.pack(throttle_ms))
    body = b"".join(pieces)
    return _LEGACY_FRAME.pack(8 + len(body), correlation_id, len(topics)) + body
