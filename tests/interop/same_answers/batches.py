"""Record batches to send: right ones, and ones with a field changed under a right checksum."""

from __future__ import annotations

import struct
import time
from typing import Any

from moldau.records.batch import CRC, CRC_POSITION, crc_of
from moldau.records.record import Record, build_batch

HOUR_MS = 3_600_000
START_MS = int(time.time() * 1000) - HOUR_MS
"""The time of the first record: young enough to be kept, old enough to be told from now."""

FIELDS = {  # position and struct code of a batch header's fields
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "count": (57, "i"),
}


def batch(
    *values: bytes | None, key: bytes | None = b"key", timestamp: int = START_MS, **options: Any
) -> bytes:
    """Records a second apart, with headers."""
    records = [
        Record(offset, timestamp + 1000 * offset, key, value, (("trace", b"1"), ("empty", None)))
        for offset, value in enumerate(values)
    ]
    return build_batch(records, **options)


def records(*pairs: tuple[bytes | None, int], **options: Any) -> bytes:
    """A record for each pair of key and timestamp."""
    return build_batch(
        [Record(offset, timestamp, key, b"value") for offset, (key, timestamp) in enumerate(pairs)], **options
    )


def changed(good: bytes, *, sealed: bool = True, **fields: int) -> bytes:
    """The batch with some header fields changed; `sealed` gives it the checksum that fits."""
    out = bytearray(good)
    for name, value in fields.items():
        position, code = FIELDS[name]
        struct.pack_into(f">{code}", out, position, value)
    return seal(out) if sealed else bytes(out)


def with_body(good: bytes, body: bytes) -> bytes:
    """The header of a batch over other bytes of records, with the length and checksum that fit."""
    return changed(good[:61] + body, length=49 + len(body))


def seal(batch: bytearray) -> bytes:
    CRC.pack_into(batch, CRC_POSITION, crc_of(batch, 0, len(batch)))
    return bytes(batch)


def old_message(magic: int) -> bytes:
    """A message in the format of before record batches (magic 0 or 1), with a checksum of zero."""
    body = struct.pack(">Ibb", 0, magic, 0) + (struct.pack(">q", START_MS) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    return struct.pack(">qi", 0, len(body)) + body
