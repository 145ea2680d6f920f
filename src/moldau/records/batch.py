"""The header of a record batch (format v2), its checksum and its attribute bits.

A batch is 61 bytes of header and then its records, perhaps compressed. The checksum covers everything from
the attributes on, so base offset, length and leader epoch may be written in place without touching it.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
    | base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | count 4
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from moldau.runtime.ports import Buffer

HEADER = Struct(">qiiBIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_AND_BEFORE_BYTES = 12
"""`length` counts what follows it: a batch is `length` + 12 bytes long."""
LENGTH_MIN = HEADER_BYTES - LENGTH_AND_BEFORE_BYTES
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 22  # of the byte with the flags
CRC_START = 21
"""The first byte that the checksum covers: the attributes."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by compaction: the base timestamp is then the time at which tombstones may go."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
NO_SEQUENCE = -1
SEQUENCE_MAX = 2**31 - 1

_new_tuple = tuple.__new__
"""Half the cost of calling a NamedTuple's class."""

OFFSET_AND_EPOCH = Struct(">qii")
"""Base offset, length and leader epoch: what a leader writes in place."""
ATTRIBUTES_TO_MAX_TIMESTAMP = Struct(">hiqq")
CRC = Struct(">I")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name wins over tuple.count

    @property
    def size(self) -> int:
        return self.length + LENGTH_AND_BEFORE_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.last_offset_delta) if self.base_sequence >= 0 else -1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position; struct.error where fewer than 61 bytes are there."""
    return _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))


def crc_of(buffer: Buffer, start: int, stop: int) -> int:
    """The checksum of the batch in buffer[start:stop]."""
    return int(crc32c(memoryview(buffer)[start + CRC_START : stop]))


def sequence_after(sequence: int, count: int) -> int:
    """Sequence numbers go from 2^31 - 1 on to 0."""
    return (sequence + count) & SEQUENCE_MAX


def set_timestamps(buffer: memoryview, start: int, stop: int, attributes: int, max_timestamp: int) -> None:
    """Write attributes and max timestamp in place, and the checksum anew (LogAppendTime)."""
    at = start + CRC_START
    _, last_offset_delta, base_timestamp, _ = ATTRIBUTES_TO_MAX_TIMESTAMP.unpack_from(buffer, at)
    ATTRIBUTES_TO_MAX_TIMESTAMP.pack_into(
        buffer, at, attributes, last_offset_delta, base_timestamp, max_timestamp
    )
    CRC.pack_into(buffer, start + CRC_POSITION, crc_of(buffer, start, stop))
