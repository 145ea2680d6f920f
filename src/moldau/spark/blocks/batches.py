"""The record batches of one Fetch answer: which of them count, checked and unfolded.

`scan` looks at the headers only, so that the next request can leave before anything is decoded. `Blocks` checks, leaves
out control batches and aborted transactions, and unfolds: what it gives are the records that a reader of this isolation
level sees. A batch that was cut off at the end of an answer is left for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import groupby
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from moldau.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
)
from moldau.records.compression import Codec, DecompressionRefused
from moldau.records.record import RECORD_BYTES_MIN, BadRecord, read_records
from moldau.spark.blocks.direct import direct
from moldau.spark.blocks.errors import CorruptData, UnsupportedFormat
from moldau.spark.blocks.unfolding import Arrays, UnfoldBatches, Unfolded, tabulate

BLOCK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Unfolded batches are decoded together up to here: a small answer may unfold to gigabytes."""
OFFSET_MAX: Final = 2**63 - 2
ABORT: Final = 0
LENGTH_FIELD, MAGIC_FIELD, CRC_FIELD, ATTRIBUTES_FIELD, LAST_DELTA_FIELD = (
    BatchHeader._fields.index(name) for name in ("length", "magic", "crc", "attributes", "last_offset_delta")
)
"""Found by position in the loops over batches, where a name takes twice as long: a batch may have 16 records only."""
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_CONTROL_KEY: Final = Struct(">hh")  # version, type


Found = tuple[int, int, BatchHeader]
"""Where a whole batch begins and ends in an answer, and its header."""


class Body(NamedTuple):
    """The records of one batch in a block, and what its header says of them."""

    start: int
    stop: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int
    """1 where the broker set the time of all records, which is `max_timestamp`."""
    max_timestamp: int


class Block(NamedTuple):
    """Some batches, unfolded, in one piece of memory."""

    data: memoryview
    bodies: Sequence[Body]
    """For the compiled decoder it may be an array of the same numbers."""

    @property
    def record_count(self) -> int:
        return sum([body.record_count for body in self.bodies])


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
    unpack, make = HEADER.unpack_from, BatchHeader._make
    start, size = 0, len(records)
    while size - start >= HEADER_BYTES and position < next_offset:
        header = make(unpack(records, start))
        if header[MAGIC_FIELD] != MAGIC or header[LENGTH_FIELD] < LENGTH_MIN:
            break
        stop = start + header[LENGTH_FIELD] + LENGTH_AND_BEFORE_BYTES
        if stop > size:
            break
        base_offset, last_offset = header[0], header[0] + header[LAST_DELTA_FIELD]
        if not 0 <= base_offset <= last_offset <= OFFSET_MAX:
            raise CorruptData(f"the batch at offset {base_offset} claims to end at {last_offset}")
        if last_offset >= position:  # a broker sends whole index entries: the first batches may be too old
            found.append((start, stop, header))
            position = last_offset + 1
        start = stop
    missing = _missing(records[start:]) if position < next_offset else 0
    return Scanned(found, position, 0 if found else missing)


def _missing(rest: memoryview) -> int:
    """How many bytes the batch lacks that was cut off; what is no batch of this format is an error."""
    if len(rest) <= MAGIC_POSITION:
        return HEADER_BYTES if rest else 0
    base_offset, length = _OFFSET_AND_LENGTH.unpack_from(rest)
    if rest[MAGIC_POSITION] != MAGIC:
        raise UnsupportedFormat(
            f"records at offset {base_offset} are in format v{rest[MAGIC_POSITION]}: this reader knows "
            "v2, which Kafka writes since 0.11. Copy the topic to a new one, or read it with `format('kafka')`."
        )
    if length < LENGTH_MIN:
        raise CorruptData(f"the batch at offset {base_offset} claims {length} bytes")
    return int(length) + LENGTH_AND_BEFORE_BYTES - len(rest)


class Transactions:
    """Which batches of an answer belong to aborted transactions, as Kafka's CompletedFetch decides it."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._to_come)
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._to_come or self._open)

    def hides(self, header: BatchHeader) -> bool:
        while self._to_come and self._to_come[0][0] <= header.last_offset:
            self._open.add(heappop(self._to_come)[1])
        return header.is_transactional and header.producer_id in self._open

    def end(self, producer_id: int) -> None:
        self._open.discard(producer_id)


class Blocks:
    """Makes blocks of answers, one after the other; a block is valid until the next one is made."""

    def __init__(self, check_crc: bool = True) -> None:
        self._check_crc = check_crc
        self._unfolded = Unfolded()

    def of(
        self,
        records: memoryview,
        found: Sequence[Found],
        aborted: Sequence[tuple[int, int]],
        unfold_batches: UnfoldBatches | None = None,
    ) -> Iterator[Block]:
        """The visible records; with compiled code, for the compiled decoder only.

        CorruptData, UnsupportedFormat for what cannot be read.
        """
        if self._check_crc:
            check_sums(records, found)
        visible = self._visible(records, found, Transactions(aborted))
        for codec_id, group in groupby(visible, _codec_of):
            codec, batches = _known(codec_id), list(group)
            if codec is Codec.NONE:
                yield _as_they_are(records, batches, unfold_batches)
            elif unfold_batches is None or direct(codec) is None:
                yield from self._unfold(records, codec, batches)
            else:
                yield from self._unfold_many(records, codec, batches, unfold_batches)

    def _visible(
        self, records: memoryview, found: Sequence[Found], transactions: Transactions
    ) -> Sequence[Found]:
        if not transactions and not any(header[ATTRIBUTES_FIELD] & CONTROL for _, _, header in found):
            return found
        visible = []
        for batch in found:
            start, stop, header = batch
            hidden = transactions.hides(header)
            if header.attributes & CONTROL:
                if header.is_transactional and _ends_in_abort(records[start:stop]):
                    transactions.end(header.producer_id)
            elif not hidden:
                visible.append(batch)
        return visible

    def _unfold(self, records: memoryview, codec: Codec, batches: Iterable[Found]) -> Iterator[Block]:
        unfolded, bodies = self._unfolded, []
        unfolded.clear()
        for batch in batches:
            bodies.append(self._unfold_one(records, codec, batch))
            if unfolded.size >= BLOCK_BYTES_MAX:
                yield Block(unfolded.data, bodies)
                unfolded.clear()
                bodies = []
        if bodies:
            yield Block(unfolded.data, bodies)

    def _unfold_one(self, records: memoryview, codec: Codec, batch: Found) -> Body:
        start, stop, header = batch
        at = self._unfolded.size
        try:
            self._unfolded.put(codec, records[start + HEADER_BYTES : stop])
        except DecompressionRefused as reason:
            raise CorruptData(
                f"the batch at offset {header.base_offset} cannot be unfolded: {reason}"
            ) from None
        return _body(at, self._unfolded.size, header)

    def _unfold_many(
        self, records: memoryview, codec: Codec, batches: Sequence[Found], unfold_batches: UnfoldBatches
    ) -> Iterator[Block]:
        """As `_unfold`, by compiled code; what that does not take goes the other way."""
        unfolded, arrays = self._unfolded, _arrays(records, batches)
        *_, table = arrays
        unfolded.clear()
        begun = done = 0
        while begun < len(batches):
            done = unfolded.put_many(unfold_batches, codec, arrays, done, BLOCK_BYTES_MAX)
            if done < len(batches) and unfolded.size < BLOCK_BYTES_MAX:
                table[done] = self._unfold_one(records, codec, batches[done])
                done += 1
            if done == len(batches) or unfolded.size >= BLOCK_BYTES_MAX:
                yield Block(unfolded.data, table[begun:done])
                unfolded.clear()
                begun = done


def check_sums(records: memoryview, found: Sequence[Found]) -> None:
    for start, stop, header in found:
        if crc32c(records[start + CRC_START : stop]) != header[CRC_FIELD]:
            raise CorruptData(f"the checksum of the batch at offset {header.base_offset} is wrong")


def _codec_of(batch: Found) -> int:
    return batch[2][ATTRIBUTES_FIELD] & CODEC_MASK


def _arrays(records: memoryview, batches: Sequence[Found]) -> Arrays:
    spans = np.array([place for batch in batches for place in batch[:2]], np.int64).reshape(-1, 2)
    return np.frombuffer(records, np.uint8), spans, np.empty((len(batches), len(Body._fields)), np.int64)


def _as_they_are(
    records: memoryview, batches: Sequence[Found], unfold_batches: UnfoldBatches | None
) -> Block:
    if unfold_batches is not None:
        arrays = _arrays(records, batches)
        if tabulate(unfold_batches, arrays) == len(batches):
            return Block(records, arrays[2])
    return Block(records, [_body(start + HEADER_BYTES, stop, header) for start, stop, header in batches])


def _known(codec_id: int) -> Codec:
    try:
        return Codec(codec_id)
    except ValueError:
        raise UnsupportedFormat(f"a batch has the unknown codec {codec_id}") from None


def _body(start: int, stop: int, header: BatchHeader) -> Body:
    base_offset, _, _, _, _, attributes, last_delta, base_timestamp, max_timestamp, _, _, _, count = header
    if not 0 <= count <= (stop - start) // RECORD_BYTES_MIN:
        raise CorruptData(f"the batch at offset {base_offset} claims {count} records in {stop - start} bytes")
    appended = 1 if attributes & LOG_APPEND_TIME else 0
    return Body(start, stop, count, base_offset, last_delta, base_timestamp, appended, max_timestamp)


def _ends_in_abort(batch: memoryview) -> bool:
    """A control batch has one record, whose key says what it is."""
    try:
        key = read_records(batch)[0].key
        return bool(_CONTROL_KEY.unpack_from(key or b"")[1] == ABORT)
    except (BadRecord, IndexError, StructError) as reason:
        raise CorruptData(f"a control batch cannot be read: {reason}") from None
