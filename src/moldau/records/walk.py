"""Walking the records inside a batch without building them: structure, timestamps, keys.

`walk` is the inner loop of the checks on the produce path, so integers of one byte, and lengths of two, are
decoded in line; the general decoder takes the rest. Whatever the records are, it takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.records import varint
from moldau.records.record import RECORD_BYTES_MIN, BadRecord
from moldau.runtime.ports import Buffer

Walked = tuple[int, int, int, int, bool]
"""The position after the last record, the smallest and the largest timestamp delta, how many records have no key, and
whether the offset deltas are 0, 1, 2, ..."""

Fields = tuple[int, int, int, int]
"""Timestamp delta, offset delta, length of the key and of the value; negative lengths are nulls."""


class ManyHeaders(Exception):
    """A record has more headers than are to be walked."""


def walk(
    body: Buffer,
    position: int,
    stop: int,
    count: int,
    *,
    is_dense: bool = False,
    headers_max: int = 2**31,
) -> Walked:
    """Check the structure of `count` records from a position on; BadRecord says what is wrong with them.

    `is_dense`: the offset deltas have to be 0, 1, 2, ... `ManyHeaders` past `headers_max` of one record.
    """
    if count * RECORD_BYTES_MIN > stop - position:
        raise BadRecord(f"{count} records cannot fit into {stop - position} bytes")
    try:
        return _walk(body, position, stop, count, is_dense, headers_max)
    except (IndexError, varint.BadVarint):
        raise BadRecord("found invalid record structure") from None


def plain_record_end(body: Buffer, position: int, stop: int) -> int:
    """Where the record at a position ends, if it is a plain one; 0 says nothing: `walk` will tell.

    The quick way for the first record of nearly every batch: no deltas, no headers, lengths of one or two
    bytes.
    """
    if position + RECORD_BYTES_MIN > stop:
        return 0
    length = body[position]
    if length > 127:
        more = body[position + 1]
        if more > 127:
            return 0
        length = (length & 127) | more << 7
        position += 2
    else:
        position += 1
    end = position + (length >> 1)
    if length & 1 or end > stop or body[position + 1] or body[position + 2]:
        return 0
    length = body[position + 3]  # of the key
    if length > 127:
        return 0
    position += 4 if length & 1 else 4 + (length >> 1)
    if position + 2 > end:
        return 0
    length = body[position]  # of the value
    if length > 127:
        more = body[position + 1]
        if more > 127:
            return 0
        length = (length & 127) | more << 7
        position += 1
    return end if not length & 1 and position + 2 + (length >> 1) == end and not body[end - 1] else 0


def fields(body: Buffer, position: int, count: int) -> Iterator[Fields]:
    """Of each of the records from a position on, which were walked and are sound."""
    decode = varint.decode
    for _ in range(count):
        length, position = decode(body, position)
        end = position + length
        timestamp_delta, position = decode(body, position + 1, 10)
        offset_delta, position = decode(body, position)
        key_bytes, position = decode(body, position)
        value_bytes, _ = decode(body, position + max(key_bytes, 0))
        yield timestamp_delta, offset_delta, key_bytes, value_bytes
        position = end


def _walk(
    body: Buffer, position: int, stop: int, count: int, must_be_dense: bool, headers_max: int
) -> Walked:
    decode = varint.decode
    keyless = 0
    dense = True
    min_delta = max_delta = 0
    for index in range(count):
        byte = body[position]
        if byte > 127 and (more := body[position + 1]) < 128:
            length = ((byte & 127) | more << 7) >> 1
            position += 2
            end = position + length
            if byte & 1 or end > stop:
                raise BadRecord("record length is out of range")
        else:
            length, position = decode(body, position)
            end = position + length
            if length < RECORD_BYTES_MIN - 1 or end > stop:
                raise BadRecord(f"record length {length} is out of range")
        delta = body[position + 1]  # behind the attributes
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
        byte = body[position]
        if byte < 128:
            position += 1
            if byte != index << 1:
                dense = False
        else:
            offset_delta, position = decode(body, position)
            dense &= offset_delta == index
        if must_be_dense and not dense:
            raise BadRecord("offset deltas are not 0, 1, 2, ...")
        byte = body[position]
        if byte == 1:  # null; so is any negative length, as in Kafka
            keyless += 1
            position += 1
        elif byte < 128 and not byte & 1:
            position += 1 + (byte >> 1)
        else:
            length, position = decode(body, position)
            if length < 0:
                keyless += 1
            else:
                position += length
        byte = body[position]
        if not byte & 1 and byte > 127 and (more := body[position + 1]) < 128:
            position += 2 + (((byte & 127) | more << 7) >> 1)
        elif byte < 128:
            position += 1 + (byte >> 1 if not byte & 1 else 0)
        else:
            length, position = decode(body, position)
            if length > 0:
                position += length
        position = position + 1 if not body[position] else _walk_headers(body, position, end, headers_max)
        if position != end:
            raise BadRecord("the fields of a record do not end where it ends")
    return position, min_delta, max_delta, keyless, dense


def _walk_headers(body: Buffer, position: int, end: int, headers_max: int) -> int:
    count, position = varint.decode(body, position)
    if not 0 <= count <= end - position:
        raise BadRecord(f"found invalid number of record headers {count}")
    if count > headers_max:
        raise ManyHeaders
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
