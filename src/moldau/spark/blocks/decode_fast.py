"""Blocks to Arrow columns by the compiled kernel. The first call compiles, where no cache has the kernel yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from moldau.spark.blocks.batches import Block
from moldau.spark.blocks.columns import TYPES, Columns, fixed, header_column
from moldau.spark.blocks.errors import CorruptData
from moldau.spark.blocks.kernel import BASE_OFFSET, COUNT, START, STOP, decode_batches

HEADER_BYTES_MIN: Final = 2

Buffers = tuple[Any, Any, Any]
_NOTHING: Final[Buffers] = (np.zeros(1, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.uint8))


def decode(block: Block, wanted: Collection[str], first_offset: int, next_offset: int) -> Columns:
    """The wanted columns of the records from `first_offset` to `next_offset`. CorruptData for what is no record."""
    data = np.frombuffer(block.data, np.uint8)
    table = np.asarray(block.bodies, np.int64)
    rows_max = int(table[:, COUNT].sum())
    size = int((table[:, STOP] - table[:, START]).sum())
    offsets, timestamps = _empty(rows_max, np.int64), _empty(rows_max, np.int64)
    kinds = _empty(rows_max, np.int32)
    flags = "key" in wanted, "value" in wanted, "headers" in wanted
    keys, values, lists = (_room(rows_max, size) if flag else _NOTHING for flag in flags)
    names, contents = (_room(size // HEADER_BYTES_MIN, size) if flags[2] else _NOTHING for _ in range(2))
    headers: Any = np.zeros(3, np.int64)
    rows, key_bytes, value_bytes, bad = decode_batches(
        data, table, first_offset, next_offset, flags, headers, offsets, timestamps, kinds,
        keys, values, (lists[0], lists[2]), names, contents,
    )  # fmt: skip
    if bad >= 0:
        raise CorruptData(f"the records of the batch at offset {table[bad, BASE_OFFSET]} do not fit together")
    columns = {"offset": fixed(TYPES["offset"], offsets[:rows])}
    if "timestamp" in wanted:
        columns["timestamp"] = fixed(TYPES["timestamp"], timestamps[:rows])
    if "timestampType" in wanted:
        columns["timestampType"] = fixed(TYPES["timestampType"], kinds[:rows])
    if flags[0]:
        columns["key"] = _binary(keys, rows, key_bytes)
    if flags[1]:
        columns["value"] = _binary(values, rows, value_bytes)
    if flags[2]:
        columns["headers"] = header_column(
            pa.py_buffer(lists[0][: rows + 1]),
            pa.py_buffer(lists[2]),
            rows,
            _binary(names, headers[0], headers[1]),
            _binary(contents, headers[0], headers[2]),
        )
    return columns


def _room(rows: int, size: int) -> Buffers:
    """Offsets, content and validity of a binary column; memory that is never touched costs nothing."""
    offsets = _empty(rows + 1, np.int32)
    offsets[0] = 0
    return offsets, _empty(size, np.uint8), np.full((rows + 7) // 8, 0xFF, np.uint8)


def _empty(count: int, kind: Any) -> Any:
    """`np.empty` from Arrow's pool, which keeps memory for the next block. numpy gives megabytes back to the system
    each time: to have them anew, page by page, takes longer than to copy 1 KB records there."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def _binary(buffers: Buffers, rows: int, used: int) -> pa.Array:
    offsets, content, validity = buffers
    return pa.Array.from_buffers(
        pa.binary(),
        rows,
        [
            pa.py_buffer(validity[: (rows + 7) // 8]),
            pa.py_buffer(offsets[: rows + 1]),
            pa.py_buffer(content[:used]),
        ],
    )
