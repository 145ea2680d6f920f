"""Walking the records inside a batch without building them: structure, timestamps, keys.

`walk` is the inner loop of the deep checks, so the one-byte integers, which nearly all are, are decoded in
line.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.records import varint
from moldau.records.record import RECORD_BYTES_MIN, BadRecord
from moldau.runtime.ports import Buffer


class Walked(NamedTuple):
    position: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    keyless: list[int]
    """Indexes of records without a key."""
    dense: bool
    """Whether the offset deltas are 0, 1, 2, ..."""


def walk(body: Buffer, position: int, stop: int, count: int) -> Walked:
    """Check the structure of `count` records from a position on; BadRecord says what is wrong with them."""
    if count * RECORD_BYTES_MIN > stop - position:
        raise BadRecord(f"{count} records cannot fit into {stop - position} bytes")
    try:
        return _walk(body, position, stop, count)
    except (IndexError, varint.BadVarint):
        raise BadRecord("found invalid record structure") from None


def _walk(body: Buffer, position: int, stop: int, count: int) -> Walked:
    decode = varint.decode
    keyless: list[int] = []
    dense = True
    min_delta = max_delta = 0
    for index in range(count):
        length, position = decode(body, position)
        end = position + length
        if length < RECORD_BYTES_MIN - 1 or end > stop:
            raise BadRecord(f"record length {length} is out of range")
        delta = body[position + 1]
        if delta < 128:
            delta = (delta >> 1) ^ -(delta & 1)
            position += 2
        else:
            delta, position = decode(body, position + 1, 10)
        if index == 0:
            min_delta = max_delta = delta
        elif delta > max_delta:
            max_delta = delta
        elif delta < min_delta:
            min_delta = delta
        offset_delta, position = decode(body, position)
        if offset_delta != index:
            dense = False
        size = body[position]
        if size == 1:
            keyless.append(index)
            position += 1
        else:
            size, position = decode(body, position)
            if size < 0:
                keyless.append(index)
            else:
                position += size
        size, position = decode(body, position)
        if size > 0:
            position += size
        headers = body[position]
        if headers:
            position = _walk_headers(body, position, end)
        else:
            position += 1
        if position != end:
            raise BadRecord(f"record of {length} bytes, but its fields do not end there")
    return Walked(position, min_delta, max_delta, keyless, dense)


def _walk_headers(body: Buffer, position: int, end: int) -> int:
    count, position = varint.decode(body, position)
    if not 0 <= count <= end - position:
        raise BadRecord(f"found invalid number of record headers {count}")
    for _ in range(count):
        size, position = varint.decode(body, position)
        if size < 0:
            raise BadRecord(f"invalid negative header key size {size}")
        size, position = varint.decode(body, position + size)
        if size > 0:
            position += size
        if position > end:
            raise BadRecord("a header reaches beyond its record")
    return position
