"""Producer snapshots: `<offset>.snapshot` holds the state of all producers before that offset, in Kafka's
format v1.

    version 2 | crc32c 4 (of what follows) | number of entries 4 | entries of 46 bytes

Of the last five batches only the newest is kept; `recall` finds the others in the log when a retry asks for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

from crc32c import crc32c

from moldau.log.producers import BatchSeen, ProducerEntry
from moldau.records.batch import NO_SEQUENCE, SEQUENCE_MAX

VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
EMPTY_BYTES = _HEAD.size + _COUNT.size
"""The size of a snapshot with no producers in it."""


class BadSnapshot(ValueError):
    pass


def write_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            last.last_offset - last.first_offset if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    return _HEAD.pack(VERSION, crc32c(body)) + body


def read_snapshot(data: bytes, offset: int | None = None) -> list[ProducerEntry]:
    """The producers in a snapshot; `offset` is the one that it is named by, where that is to be compared."""
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except error:
        raise BadSnapshot("cut off within its head") from None
    if version != VERSION:
        raise BadSnapshot(f"unknown version {version}")
    if crc != crc32c(data[_HEAD.size :]):
        raise BadSnapshot("checksum does not match")
    if len(data) != EMPTY_BYTES + count * _ENTRY.size:
        raise BadSnapshot(f"{count} entries do not fill {len(data)} bytes")
    entries = [_entry(*fields) for fields in _ENTRY.iter_unpack(data[EMPTY_BYTES:])]
    if offset is not None and any(entry.last_offset >= offset for entry in entries):
        raise BadSnapshot("it speaks of later offsets than its name allows")
    return entries


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.current_txn_first_offset = current_txn_first_offset
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX if last_sequence >= 0 else NO_SEQUENCE
        seen = BatchSeen(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)
        entry.batches.append(seen)
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MAX
        entry.from_snapshot = True
    return entry
