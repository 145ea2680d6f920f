"""All batches of an answer in one call of compiled code: unfolded, with a row of the decoder's table for each.

That is what `Unfolded.put` and `Body` do for a batch, without what Python takes around the codec: a fifth of all the
work, where a batch has 16 records. The loop ends before a batch that it cannot take, whatever the reason is; the caller
does that one in the usual way, which knows all of the reasons, and comes back.

The codec's function comes as an address: a function of ctypes could not be cached on disk. Pointers and sizes are
passed as numbers of 64 bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types

from moldau.records.batch import HEADER_BYTES, LOG_APPEND_TIME
from moldau.records.record import RECORD_BYTES_MIN
from moldau.spark.blocks.direct import ZSTD_HEAD_BYTES, ZSTD_ONE_SEGMENT, ZSTD_WINDOW_MAX
from moldau.spark.blocks.kernel import (
    APPEND_TIME,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_DELTA,
    MAX_TIMESTAMP,
    START,
    STOP,
    built_in,
    compiled,
)

# Where the numbers are in the header of a batch.
ATTRIBUTES_AT: Final = 21
LAST_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
COUNT_AT: Final = 57


@built_in
def _call(typing_context: Any, function: Any, arguments: Any) -> Any:
    """The result of the C function at an address."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        address, given = values
        pointer = builder.inttoptr(address, ir.FunctionType(word, [word] * count).as_pointer())
        return builder.call(pointer, [builder.extract_value(given, index) for index in range(count)])

    return types.int64(types.int64, types.UniTuple(types.int64, count)), generate


@compiled
def _number(data: Any, at: Any, size: Any) -> Any:
    """A signed number of so many bytes, the highest one first."""
    number = np.int64(np.int8(data[at]))
    for index in range(1, size):
        number = number << 8 | np.int64(data[at + index])
    return number


@compiled
def _unfold_lz4(
    function: Any, decoder: Any, source: Any, length: Any, target: Any, room: Any, sizes: Any
) -> Any:
    """As `direct` does it: LZ4F_decompress, which writes what it has written and taken where it read its limits."""
    sizes_at = np.int64(sizes.ctypes.data)
    sizes[0], sizes[1] = room, length
    left = _call(function, (decoder, target, sizes_at, source, sizes_at + 8, 0))
    return sizes[0] if left == 0 and sizes[1] == length else -1


@compiled
def _unfold_zstd(
    function: Any, decoder: Any, records: Any, at: Any, source: Any, length: Any, target: Any, room: Any
) -> Any:
    """As `direct` does it: ZSTD_decompressDCtx."""
    if length < ZSTD_HEAD_BYTES:
        return -1
    if records[at + 4] & ZSTD_ONE_SEGMENT == 0 and np.int64(records[at + 5]) > ZSTD_WINDOW_MAX:
        return -1
    return _call(function, (decoder, target, room, source, length))


@compiled
def unfold_batches(
    function: Any, decoder: Any, is_lz4: Any, records: Any, spans: Any, first: Any,
    target: Any, used: Any, target_bytes: Any, room: Any, enough: Any, sizes: Any, table: Any,
) -> Any:  # fmt: skip
    """(the batch that it has ended before, the bytes of the target in use).

    `spans` has where batches begin and end in `records`, and are whole; `room` is what each of them may unfold to, and
    with `enough` bytes in use it ends. Without a function batches stay where they are. `sizes` are two numbers to work
    with.
    """
    data_at = np.int64(records.ctypes.data)
    for batch in range(first, spans.shape[0]):
        start, stop = spans[batch, 0], spans[batch, 1]
        at = start + HEADER_BYTES
        size = stop - at
        if function != 0:
            if used >= enough or target_bytes - used < room:
                return batch, used
            if is_lz4:
                size = _unfold_lz4(function, decoder, data_at + at, size, target + used, room, sizes)
            else:
                size = _unfold_zstd(function, decoder, records, at, data_at + at, size, target + used, room)
            if size < 0:
                return batch, used
            at = used
        count = _number(records, start + COUNT_AT, 4)
        if count < 0 or count > size // RECORD_BYTES_MIN:
            return batch, used
        used += size
        row = table[batch]
        row[START] = at
        row[STOP] = at + size
        row[COUNT] = count
        row[BASE_OFFSET] = _number(records, start, 8)
        row[LAST_DELTA] = _number(records, start + LAST_DELTA_AT, 4)
        row[BASE_TIMESTAMP] = _number(records, start + BASE_TIMESTAMP_AT, 8)
        row[APPEND_TIME] = 1 if _number(records, start + ATTRIBUTES_AT, 2) & LOG_APPEND_TIME else 0
        row[MAX_TIMESTAMP] = _number(records, start + MAX_TIMESTAMP_AT, 8)
    return spans.shape[0], used
