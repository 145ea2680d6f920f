"""The record batches of one Fetch answer: which of them count, checked and unfolded.

`scan` looks at the headers only, so that the next request can leave before anything is decoded. `blocks` checks, leaves
out control batches and aborted transactions, and unfolds: what it gives are records that a reader of this isolation
level sees. A batch that was cut off at the end of an answer is left for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from struct import Struct
from typing import Final, NamedTuple

from moldau.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_of,
)
from moldau.records.compression import Codec, DecompressionRefused, decompress
from moldau.records.record import RECORD_BYTES_MIN, BadRecord, read_records
from moldau.spark.blocks.errors import CorruptData, UnsupportedFormat

BLOCK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Unfolded batches are decoded together up to here: a small answer may unfold to gigabytes."""
ABORT: Final = 0
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_CONTROL_KEY: Final = Struct(">hh")  # version, type


class Found(NamedTuple):
    """A whole batch in an answer."""

    start: int
    stop: int
    header: BatchHeader


class Body(NamedTuple):
    """The records of one batch, unfolded."""

    data: memoryview
    record_count: int
    base_offset: int
    base_timestamp: int
    append_time: int | None
    """The timestamp of all records, where the broker set it."""


@dataclass(frozen=True, slots=True)
class Scanned:
    found: Sequence[Found]
    next_offset: int
    """Where the next Fetch goes on."""
    missing_bytes: int
    """What the first batch lacks, where the answer has no whole one."""


def scan(records: memoryview, position: int, next_offset: int) -> Scanned:
    """The whole batches that reach into the offsets from `position` to `next_offset`."""
    found: list[Found] = []
    start, size = 0, len(records)
    while start + LENGTH_AND_BEFORE_BYTES <= size and position < next_offset:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(records, start)
        stop = start + LENGTH_AND_BEFORE_BYTES + length
        if start + MAGIC_POSITION < size and records[start + MAGIC_POSITION] != MAGIC:
            raise UnsupportedFormat(
                f"records at offset {base_offset} are in format v{records[start + MAGIC_POSITION]}: this reader knows "
                "v2, which Kafka writes since 0.11. Copy the topic to a new one, or read it with `format('kafka')`."
            )
        if length < LENGTH_MIN:
            raise CorruptData(f"the batch at offset {base_offset} claims {length} bytes")
        if stop > size:
            return Scanned(found, position, 0 if found else stop - size)
        header = BatchHeader._make(HEADER.unpack_from(records, start))
        if header.last_offset_delta < 0 or base_offset < 0:
            raise CorruptData(f"the batch at offset {base_offset} ends before it begins")
        start = stop
        if (
            header.last_offset < position
        ):  # a broker sends whole index entries, the first batches may be too old
            continue
        found.append(Found(stop - header.size, stop, header))
        position = header.last_offset + 1
    return Scanned(found, position, 0)


class Transactions:
    """Which batches of an answer belong to aborted transactions, as Kafka's CompletedFetch decides it."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._to_come)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._to_come and self._to_come[0][0] <= header.last_offset:
            self._open.add(heappop(self._to_come)[1])
        return header.is_transactional and header.producer_id in self._open

    def end(self, producer_id: int) -> None:
        self._open.discard(producer_id)


def blocks(
    records: memoryview, found: Sequence[Found], aborted: Sequence[tuple[int, int]], check_crc: bool = True
) -> Iterator[list[Body]]:
    """The visible records, some batches at a time. They are valid as long as `records` are."""
    transactions = Transactions(aborted)
    bodies: list[Body] = []
    size = 0
    for start, stop, header in found:
        if check_crc and crc_of(records, start, stop) != header.crc:
            raise CorruptData(f"the checksum of the batch at offset {header.base_offset} is wrong")
        hidden = transactions.hides(header)
        if header.attributes & CONTROL:
            if header.is_transactional and _ends_in_abort(records[start:stop]):
                transactions.end(header.producer_id)
            continue
        if hidden or not header.count:
            continue
        body = _unfold(records, start, stop, header)
        bodies.append(body)
        size += len(body.data)
        if size >= BLOCK_BYTES_MAX:
            yield bodies
            bodies, size = [], 0
    if bodies:
        yield bodies


def _ends_in_abort(batch: memoryview) -> bool:
    """A control batch has one record, whose key says what it is."""
    try:
        key = read_records(batch)[0].key
        return key is not None and _CONTROL_KEY.unpack_from(key)[1] == ABORT
    except (BadRecord, IndexError, ValueError) as reason:
        raise CorruptData(f"a control batch cannot be read: {reason}") from None


def _unfold(records: memoryview, start: int, stop: int, header: BatchHeader) -> Body:
    data = records[start + HEADER_BYTES : stop]
    codec = header.attributes & CODEC_MASK
    if codec:
        data = _decompressed(codec, data, header.base_offset)
    if not 0 <= header.count <= len(data) // RECORD_BYTES_MIN:
        raise CorruptData(
            f"the batch at offset {header.base_offset} claims {header.count} records in {len(data)} bytes"
        )
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    return Body(data, header.count, header.base_offset, header.base_timestamp, append_time)


def _decompressed(codec: int, data: memoryview, base_offset: int) -> memoryview:
    try:
        return memoryview(decompress(Codec(codec), data))
    except DecompressionRefused as reason:
        raise CorruptData(f"the batch at offset {base_offset} cannot be unfolded: {reason}") from None
    except ValueError:
        raise UnsupportedFormat(f"the batch at offset {base_offset} has the unknown codec {codec}") from None
