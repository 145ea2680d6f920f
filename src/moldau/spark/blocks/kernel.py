"""Records to column buffers by numba: one call for all batches of a block.

Nothing that was read from the wire is trusted: every number is checked against the end of its record, and that against
the end of its batch, before it is used as a length. The caller sizes the buffers: a row takes at least seven bytes, a
header two, and no column has more bytes than the block.

Numbers are int64 throughout: numba compares unsigned with signed ones as floats, seven times as slow. `BEYOND` is a
position after every end, so that one check per record finds what any of its numbers lacked. Offsets and lengths that
reach 2^31 do not occur: a block is smaller than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BEYOND: Final = 1 << 62
LENGTH_MIN: Final = 6
"""Attributes, timestamp delta, offset delta, key length, value length, header count: a byte each."""

# A row of the table of batches.
START, STOP, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, APPEND_TIME, MAX_TIMESTAMP = range(8)

MILLIS_MAX: Final = (2**63 - 1) // 1000
MICROS_MAX: Final = 2**63 - 1

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Without numba's atomic count of references, which else takes most of the time: nothing is allocated here."""
    return njit(cache=True, _nrt=False)(function)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    return njit(cache=True, _nrt=False, inline="always")(function)  # type: ignore[no-any-return]


def built_in(function: Function) -> Callable[..., Any]:
    """Whoever calls it leaves the typing context out."""
    return intrinsic(function)  # type: ignore[no-any-return]


@built_in
def _copy(typing_context: Any, target: Any, to: Any, source: Any, at: Any, length: Any) -> Any:
    """memcpy(target + to, source + at, length); as a call through ctypes it could not be cached on disk."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, to_value, out_of, at_value, length_value = arguments
        target_data = context.make_array(signature.args[0])(context, builder, into).data
        source_data = context.make_array(signature.args[2])(context, builder, out_of).data
        cgutils.raw_memcpy(
            builder,
            builder.gep(target_data, [to_value]),
            builder.gep(source_data, [at_value]),
            length_value,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@inlined
def _varint(data: Any, position: Any, stop: Any) -> Any:
    """A number of at most five bytes, and the position after it."""
    if position >= stop:
        return 0, BEYOND
    byte = np.int64(data[position])
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number = byte & 127
    for index in range(1, 5):
        if position + index >= stop:
            return 0, BEYOND
        byte = np.int64(data[position + index])
        number |= (byte & 127) << (7 * index)
        if byte < 128:
            return (number >> 1) ^ -(number & 1), position + index + 1
    return 0, BEYOND


@inlined
def _varlong(data: Any, position: Any, stop: Any) -> Any:
    """A number of at most ten bytes, of which 64 bits count, and the position after it."""
    number = np.int64(0)
    for index in range(10):
        if position + index >= stop:
            return np.int64(0), BEYOND
        byte = np.int64(data[position + index])
        number |= (byte & 127) << (7 * index)
        if byte < 128:
            return ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1), position + index + 1
    return np.int64(0), BEYOND


@inlined
def _micros(millis: Any) -> Any:
    """What does not fit becomes the last moment that does."""
    if millis > MILLIS_MAX:
        return MICROS_MAX
    if millis < -MILLIS_MAX:
        return -MICROS_MAX
    return millis * 1000


@inlined
def _put(
    offsets: Any, content: Any, validity: Any, row: Any, used: Any, data: Any, at: Any, length: Any
) -> Any:
    """One value of a binary column; the bytes in use after it. A negative length is a null."""
    if length < 0:
        validity[row >> 3] &= ~(1 << (row & 7))
        length = 0
    _copy(content, used, data, at, length)
    offsets[row + 1] = used + length
    return used + length


@compiled
def _put_headers(
    data: Any, position: Any, end: Any, count: Any, keep: Any, names: Any, contents: Any, used: Any
) -> Any:
    """Walk the headers of a record, and keep them where asked to; the position after them.

    `used` has the number of headers so far, the bytes of their names and of their values.
    """
    name_offsets, name_content, name_validity = names
    offsets, content, validity = contents
    for _ in range(count):
        length, at = _varint(data, position, end)
        if length < 0 or length > end - at:
            return BEYOND
        size, after = _varint(data, at + length, end)
        if size > end - after:
            return BEYOND
        position = after + max(size, 0)
        if keep:
            header = used[0]
            used[1] = _put(name_offsets, name_content, name_validity, header, used[1], data, at, length)
            used[2] = _put(offsets, content, validity, header, used[2], data, after, size)
            used[0] = header + 1
    return position


@inlined
def _record(data: Any, position: Any, stop: Any) -> Any:
    """The numbers of a record, from its length to its number of headers. It ends at `BEYOND` where they do not fit."""
    length, position = _varint(data, position, stop)
    end = position + length
    if length < LENGTH_MIN or end > stop:
        end = BEYOND
        position = BEYOND
        stop = 0
    else:
        stop = end
    elapsed, position = _varlong(data, position + 1, stop)
    delta, position = _varint(data, position, stop)
    key_length, key_at = _varint(data, position, stop)
    if key_length > stop - key_at:
        key_at = BEYOND
    value_length, value_at = _varint(data, key_at + max(key_length, 0), stop)
    if value_length > stop - value_at:
        value_at = BEYOND
    count, position = _varint(data, value_at + max(value_length, 0), stop)
    if count < 0 or count > stop - position:
        end = BEYOND
    return elapsed, delta, key_at, key_length, value_at, value_length, count, position, end


@compiled
def decode_batches(
    data: Any, table: Any, first_offset: Any, next_offset: Any, wanted: Any, headers: Any,
    offsets: Any, timestamps: Any, kinds: Any, keys: Any, values: Any, header_lists: Any, names: Any, contents: Any,
) -> Any:  # fmt: skip
    """(rows, bytes of keys, bytes of values, the batch that is bad or -1).

    `headers` counts headers, the bytes of their names and of their values: three numbers that are 0.
    """
    want_key, want_value, want_headers = wanted
    key_offsets, key_content, key_validity = keys
    value_offsets, value_content, value_validity = values
    lists, list_validity = header_lists
    row = key_bytes = value_bytes = np.int64(0)
    for batch in range(table.shape[0]):
        position, stop, base_offset = table[batch, START], table[batch, STOP], table[batch, BASE_OFFSET]
        last_delta, base_timestamp = table[batch, LAST_DELTA], table[batch, BASE_TIMESTAMP]
        kind, append_time = table[batch, APPEND_TIME], table[batch, MAX_TIMESTAMP]
        previous = np.int64(-1)
        for _ in range(table[batch, COUNT]):
            elapsed, delta, key_at, key_length, value_at, value_length, count, position, end = _record(
                data, position, stop
            )
            if end > stop or delta <= previous or delta > last_delta:
                return row, key_bytes, value_bytes, batch
            previous = delta
            offset = base_offset + delta
            keep = first_offset <= offset and offset < next_offset
            if count:
                position = _put_headers(
                    data, position, end, count, keep and want_headers, names, contents, headers
                )
            if position != end:
                return row, key_bytes, value_bytes, batch
            if not keep:
                continue
            offsets[row] = offset
            timestamps[row] = _micros(append_time if kind else base_timestamp + elapsed)
            kinds[row] = kind
            if want_key:
                key_bytes = _put(
                    key_offsets, key_content, key_validity, row, key_bytes, data, key_at, key_length
                )
            if want_value:
                value_bytes = _put(
                    value_offsets,
                    value_content,
                    value_validity,
                    row,
                    value_bytes,
                    data,
                    value_at,
                    value_length,
                )
            if want_headers:
                lists[row + 1] = headers[0]
                if not count:
                    list_validity[row >> 3] &= ~(1 << (row & 7))
            row += 1
        if position != stop:
            return row, key_bytes, value_bytes, batch
    return row, key_bytes, value_bytes, -1
