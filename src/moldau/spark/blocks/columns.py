"""The columns of a row, their Arrow types, and how buffers become arrays.

The row is that of Spark's own connector. A record without headers has a null there, as in Spark.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import pyarrow as pa

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER),
}
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Columns = dict[str, pa.Array]
"""By name; `offset` is always there."""


def fixed(kind: pa.DataType, numbers: Any) -> pa.Array:
    """A column without nulls over a numpy array, which it keeps."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)], 0)


def bytes_scalar(kind: pa.DataType, content: bytes) -> pa.Scalar:
    """One value of a binary or string type. `pa.scalar` would import pandas, a quarter of the start of a worker."""
    ends = array("i", (0, len(content)))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(content)])[0]


def int32_scalar(number: int) -> pa.Scalar:
    return fixed(pa.int32(), array("i", (number,)))[0]


def header_column(
    lists: pa.Buffer, validity: pa.Buffer | None, rows: int, names: pa.Array, contents: pa.Array
) -> pa.Array:
    """Lists of headers from the offsets of the lists and what is in them."""
    pairs = pa.StructArray.from_arrays([mended(names), contents], fields=list(HEADER))
    return pa.Array.from_buffers(TYPES["headers"], rows, [validity, lists], children=[pairs])


def mended(names: pa.Array) -> pa.Array:
    """Names as strings; where one is no UTF-8, with the replacement character, as Java has it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
