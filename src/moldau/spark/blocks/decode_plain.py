"""Blocks to Arrow columns where there is no numba: Python finds the records, numpy reads their numbers, Arrow copies.

The same results as `decode_fast`, error for error. Headers are read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from moldau.records import varint
from moldau.spark.blocks.batches import Block, Body
from moldau.spark.blocks.columns import TYPES, Columns, fixed, mended
from moldau.spark.blocks.errors import CorruptData

LENGTH_MIN: Final = 6
"""Attributes, timestamp delta, offset delta, key length, value length, header count: a byte each."""
VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
MILLIS_MAX: Final = (2**63 - 1) // 1000
MICROS_MAX: Final = 2**63 - 1
START, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, APPEND_TIME, MAX_TIMESTAMP = (
    Body._fields.index(name)
    for name in (
        "start",
        "base_offset",
        "last_offset_delta",
        "base_timestamp",
        "append_time",
        "max_timestamp",
    )
)


class _Bad(Exception):
    """Records that do not fit together; which ones is found out by reading batch by batch."""


NOT_RECORDS: Final = (_Bad, IndexError, varint.BadVarint)


def decode(block: Block, wanted: Collection[str], first_offset: int, next_offset: int) -> Columns:
    """The wanted columns of the records from `first_offset` to `next_offset`. CorruptData for what is no record."""
    try:
        return _decode(block.data, block.bodies, wanted, first_offset, next_offset)
    except NOT_RECORDS:
        bad = next(body for body in block.bodies if not _is_good(block.data, body))
        raise CorruptData(
            f"the records of the batch at offset {bad.base_offset} do not fit together"
        ) from None


def _is_good(data: memoryview, body: Body) -> bool:
    try:
        _decode(data, [body], (), 0, 0)
    except NOT_RECORDS:
        return False
    return True


def _decode(
    data: memoryview, bodies: Sequence[Body], wanted: Collection[str], first_offset: int, next_offset: int
) -> Columns:
    content = np.frombuffer(data, np.uint8)
    starts, ends = _find_records(data, bodies)
    by_batch = np.repeat(np.array(bodies, np.int64), [body.record_count for body in bodies], axis=0)
    elapsed, position = _read_numbers(content, starts + 1, ends, VARLONG_BYTES_MAX)
    deltas, position = _read_numbers(content, position, ends, VARINT_BYTES_MAX)
    offsets = by_batch[:, BASE_OFFSET] + deltas
    _check((deltas >= 0) & (deltas <= by_batch[:, LAST_DELTA]))
    _check((np.diff(deltas) > 0) | (np.diff(by_batch[:, START]) > 0))
    key_lengths, keys = _read_numbers(content, position, ends, VARINT_BYTES_MAX)
    _check(key_lengths <= ends - keys)
    value_lengths, values = _read_numbers(content, keys + np.maximum(key_lengths, 0), ends, VARINT_BYTES_MAX)
    _check(value_lengths <= ends - values)
    counts, position = _read_numbers(content, values + np.maximum(value_lengths, 0), ends, VARINT_BYTES_MAX)
    _check((counts >= 0) & (counts <= ends - position) & ((counts > 0) | (position == ends)))
    headers = [_read_headers(data, *place) for place in _places(counts, position, ends)]
    rows = np.flatnonzero((offsets >= first_offset) & (offsets < next_offset))
    columns = {"offset": fixed(TYPES["offset"], offsets[rows])}
    appended = by_batch[rows, APPEND_TIME]
    if "timestamp" in wanted:
        created = by_batch[rows, BASE_TIMESTAMP] + elapsed[rows]
        millis = np.where(appended, by_batch[rows, MAX_TIMESTAMP], created)
        columns["timestamp"] = fixed(TYPES["timestamp"], _micros(millis))
    if "timestampType" in wanted:
        columns["timestampType"] = fixed(TYPES["timestampType"], appended.astype(np.int32))
    if "key" in wanted:
        columns["key"] = _gather(data, keys, key_lengths, rows)
    if "value" in wanted:
        columns["value"] = _gather(data, values, value_lengths, rows)
    if "headers" in wanted:
        columns["headers"] = _header_column(headers, counts, rows)
    return columns


def _find_records(data: memoryview, bodies: Sequence[Body]) -> tuple[Any, Any]:
    """Where the records begin, after their lengths, and where they end; the last one of a batch ends with it."""
    starts: list[int] = []
    ends: list[int] = []
    for body in bodies:
        position, stop = body.start, body.stop
        for _ in range(body.record_count):
            byte = data[position]
            if byte > 127 and (more := data[position + 1]) < 128:
                position += 2
                length = -1 if byte & 1 else ((byte & 127) | more << 7) >> 1
            else:
                length, position = varint.decode(data, position)
            starts.append(position)
            position += length
            if length < LENGTH_MIN or position > stop:
                raise _Bad
            ends.append(position)
        if position != stop:
            raise _Bad
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _read_numbers(content: Any, position: Any, ends: Any, bytes_max: int) -> tuple[Any, Any]:
    """A zigzag number at each position, and the positions after them."""
    _check(position < ends)
    byte = content[position].astype(np.int64)
    numbers, position = byte & 127, position + 1
    going_on = np.flatnonzero(byte > 127)
    for index in range(1, bytes_max):
        if not len(going_on):
            break
        _check(position[going_on] < ends[going_on])
        byte = content[position[going_on]].astype(np.int64)
        numbers[going_on] |= (byte & 127) << (7 * index)
        position[going_on] += 1
        going_on = going_on[byte > 127]
    if len(going_on):
        raise _Bad
    return ((numbers >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(numbers & 1), position


def _check(holds: Any) -> None:
    if not holds.all():
        raise _Bad


def _micros(millis: Any) -> Any:
    """What does not fit becomes the last moment that does."""
    micros = np.clip(millis, -MILLIS_MAX, MILLIS_MAX) * 1000
    micros[millis > MILLIS_MAX] = MICROS_MAX
    micros[millis < -MILLIS_MAX] = -MICROS_MAX
    return micros


def _gather(data: memoryview, starts: Any, lengths: Any, rows: Any) -> pa.Array:
    """A column of what stands at some places: the block as an array of values and the gaps between, and every other
    one taken out of it.
    """
    edges: Any = np.empty(2 * len(starts) + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = starts + np.maximum(lengths, 0)
    edges[-1] = edges[-2]
    all_of_it = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(edges), pa.py_buffer(data)], 0
    )
    is_there = pa.py_buffer(np.packbits(lengths[rows] >= 0, bitorder="little"))
    places = pa.Array.from_buffers(pa.int64(), len(rows), [is_there, pa.py_buffer(2 * rows)])
    return all_of_it.take(places)


def _places(counts: Any, position: Any, ends: Any) -> Iterator[tuple[int, int, int]]:
    some = np.flatnonzero(counts)
    return zip(counts[some].tolist(), position[some].tolist(), ends[some].tolist(), strict=True)


def _read_headers(view: memoryview, count: int, position: int, end: int) -> list[tuple[bytes, bytes | None]]:
    found = []
    for _ in range(count):
        name, position = _read_bytes(view, position, end)
        content, position = _read_bytes(view, position, end)
        if name is None:
            raise _Bad
        found.append((name, content))
    if position != end:
        raise _Bad
    return found


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = varint.decode(view, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise _Bad
    return bytes(view[position : position + length]), position + length


def _header_column(headers: list[list[tuple[bytes, bytes | None]]], counts: Any, rows: Any) -> pa.Array:
    by_row = dict(zip(np.flatnonzero(counts).tolist(), headers, strict=True))
    names = mended(pa.array([name for pairs in headers for name, _ in pairs], pa.binary())).to_pylist()
    named = iter(names)
    lists = {
        row: [{"key": next(named), "value": content} for _, content in pairs] for row, pairs in by_row.items()
    }
    return pa.array([lists.get(row) for row in rows.tolist()], TYPES["headers"])
