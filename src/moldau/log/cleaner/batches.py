"""What compaction leaves of a batch, by Kafka's rules.

- A record stays if it is the last one of its key. Offsets never change: a batch that lost records keeps its
  first and last offset, so a producer's sequence numbers can still be told from it.
- A tombstone stays until its batch's delete horizon has passed. The first compaction that meets it sets the
  horizon, `delete.retention.ms` from now: attribute bit 6, with the time in the base timestamp, against
  which the records' timestamps are then written. So does the first one that finds a marker without its
  transaction.
- A batch that lost all its records goes, unless it holds an active producer's last sequence number or epoch,
  or the last offset of what was compacted: then its header stays, with no records.
- What stays as it was is not written anew, byte for byte.

Records are kept as the bytes they are, headers included, and compressed by the codec that the batch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.log.cleaner.job import LastRecord
from moldau.log.cleaner.keys import Survivors
from moldau.log.cleaner.transactions import Transactions
from moldau.records import varint
from moldau.records.batch import CODEC_MASK, DELETE_HORIZON, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from moldau.records.compression import Codec, compress
from moldau.records.record import BadRecord, assemble, records_of
from moldau.runtime.ports import Buffer

TIMESTAMP_MAX = 2**63 - 1


class _Kept(NamedTuple):
    """A record that stays: where it lies in the batch's unfolded records."""

    start: int
    """Of its attributes, behind its length."""
    rest: int
    """Behind its timestamp."""
    stop: int
    timestamp_delta: int


class BatchCleaner:
    """Fed with every batch of a log in order, and with the number of its first record."""

    def __init__(
        self,
        survivors: Survivors,
        transactions: Transactions,
        last_records: Mapping[int, LastRecord],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._survivors = survivors
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon: int | None = now_ms + delete_retention_ms
        if self._new_horizon > TIMESTAMP_MAX:
            self._new_horizon = None  # of no use: what waits for so long stays, as in Kafka

    def clean(self, header: BatchHeader, batch: Buffer, number: int) -> Buffer | None:
        """What stays of a batch: the very same object, a new batch, or nothing."""
        may_discard = self._transactions.may_discard(header, batch)
        cleaned: Buffer | None = None
        if header.is_control:
            cleaned = self._marker(header, batch, may_discard)
        elif not may_discard and header.count:
            cleaned = self._data(header, batch, number)
        if cleaned is not None or not self._must_stay(header):
            return cleaned
        return empty_batch(header) if header.count else batch

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset is not None:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _data(self, header: BatchHeader, batch: Buffer, number: int) -> Buffer | None:
        bits, null_bits = self._survivors.of_batch(number, header.count)
        horizon = delete_horizon(header)
        if null_bits and horizon is not None and horizon <= self._now_ms:
            bits &= ~null_bits
            null_bits = 0
        new_horizon = self._new_horizon if null_bits and horizon is None else None
        if bits == (1 << header.count) - 1 and new_horizon is None:
            return batch
        if not bits:
            return None
        body = records_of(batch, header)
        return self._rebuilt(header, body, _walk(body, header.count, bits), new_horizon)

    def _marker(self, header: BatchHeader, batch: Buffer, may_discard: bool) -> Buffer | None:
        horizon = delete_horizon(header)
        if not header.count or (may_discard and horizon is not None and horizon <= self._now_ms):
            return None
        if not may_discard or horizon is not None or self._new_horizon is None:
            return batch
        body = records_of(batch, header)
        kept = _walk(body, header.count, (1 << header.count) - 1)
        return self._rebuilt(header, body, kept, self._new_horizon)

    def _rebuilt(
        self, header: BatchHeader, body: Buffer, kept: list[_Kept], new_horizon: int | None
    ) -> bytes:
        attributes, base_timestamp = header.attributes, header.base_timestamp
        timestamps = [base_timestamp + record.timestamp_delta for record in kept]
        if attributes & LOG_APPEND_TIME:
            timestamps = [header.max_timestamp] * len(kept)
        if new_horizon is not None:
            attributes |= DELETE_HORIZON
            base_timestamp = new_horizon
            deltas = (timestamp - base_timestamp for timestamp in timestamps)
            records = b"".join(_with_delta(body, *pair) for pair in zip(kept, deltas, strict=True))
        else:
            records = b"".join(_as_it_is(body, record) for record in kept)
        new_header = header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max(timestamps, default=NO_TIMESTAMP),
            count=len(kept),
        )
        return assemble(new_header, compress(Codec(header.codec_id), records))


def delete_horizon(header: BatchHeader) -> int | None:
    """When the tombstones of a batch may go; None where no compaction has met them yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def empty_batch(header: BatchHeader) -> bytes:
    """All that others need of a batch whose records are gone: offsets, epochs, producer and sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, count=0), b"")


def _walk(body: Buffer, count: int, bits: int) -> list[_Kept]:
    """The records whose bit is set."""
    kept: list[_Kept] = []
    position = 0
    decode = varint.decode
    try:
        for _ in range(count):
            length, start = decode(body, position)
            position = start + length
            if length <= 0 or position > len(body):
                raise BadRecord("record length is out of range")
            if bits & 1:
                delta, rest = decode(body, start + 1, 10)
                kept.append(_Kept(start, rest, position, delta))
            bits >>= 1
    except (IndexError, varint.BadVarint):
        raise BadRecord("found invalid record structure") from None
    return kept


def _as_it_is(body: Buffer, record: _Kept) -> bytes:
    return varint.encode(record.stop - record.start) + bytes(body[record.start : record.stop])


def _with_delta(body: Buffer, record: _Kept, delta: int) -> bytes:
    content = (
        bytes(body[record.start : record.start + 1])
        + varint.encode(delta)
        + bytes(body[record.rest : record.stop])
    )
    return varint.encode(len(content)) + content
