"""Records to Arrow columns, one record at a time in Python: slow, and right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from moldau.records import varint
from moldau.spark.blocks.batches import Body
from moldau.spark.blocks.errors import CorruptData

MICROS: Final = 1000
MICROS_MAX: Final = 2**63 - 1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}

Columns = dict[str, pa.Array]


def decode(bodies: Sequence[Body], wanted: Sequence[str], first_offset: int, next_offset: int) -> Columns:
    """The wanted columns, and always the offsets, of the records from `first_offset` to `next_offset`."""
    rows: dict[str, list[object]] = {name: [] for name in TYPES}
    for body in bodies:
        try:
            _read_body(body, rows, first_offset, next_offset)
        except (IndexError, varint.BadVarint):
            raise CorruptData(
                f"the records of the batch at offset {body.base_offset} end too early"
            ) from None
    return {
        name: pa.array(rows[name], type=kind)
        for name, kind in TYPES.items()
        if name in wanted or name == "offset"
    }


def micros(timestamp_ms: int) -> int:
    """What does not fit becomes the last moment that does."""
    return max(-MICROS_MAX, min(MICROS_MAX, timestamp_ms * MICROS))


def _read_body(body: Body, rows: dict[str, list[object]], first_offset: int, next_offset: int) -> None:
    position = 0
    for _ in range(body.record_count):
        length, start = varint.decode(body.data, position)
        stop = start + length
        if length < 0 or stop > len(body.data):
            raise CorruptData(f"a record in the batch at offset {body.base_offset} claims {length} bytes")
        delta, position = varint.decode(body.data, start + 1, 10)
        offset_delta, position = varint.decode(body.data, position)
        key, position = _read_bytes(body, position, stop)
        value, position = _read_bytes(body, position, stop)
        headers, position = _read_headers(body, position, stop)
        if position != stop:
            raise CorruptData(
                f"a record in the batch at offset {body.base_offset} does not end where it says"
            )
        offset = body.base_offset + offset_delta
        if first_offset <= offset < next_offset:
            created = body.append_time is None
            timestamp = body.base_timestamp + delta if body.append_time is None else body.append_time
            rows["key"].append(key)
            rows["value"].append(value)
            rows["offset"].append(offset)
            rows["timestamp"].append(micros(timestamp))
            rows["timestampType"].append(CREATE_TIME if created else LOG_APPEND_TIME)
            rows["headers"].append(headers)
    if position != len(body.data):
        raise CorruptData(f"bytes are left after the last record of the batch at offset {body.base_offset}")


def _read_bytes(body: Body, position: int, stop: int) -> tuple[bytes | None, int]:
    length, position = varint.decode(body.data, position)
    if length < 0:
        return None, position
    if length > stop - position:
        raise CorruptData(f"a field in the batch at offset {body.base_offset} reaches beyond its record")
    return bytes(body.data[position : position + length]), position + length


def _read_headers(body: Body, position: int, stop: int) -> tuple[list[dict[str, object]] | None, int]:
    """None where there are none, as in Spark's connector. Names that are no UTF-8 are mended as Java mends them."""
    count, position = varint.decode(body.data, position)
    if not 0 <= count <= stop - position:
        raise CorruptData(f"a record in the batch at offset {body.base_offset} claims {count} headers")
    found: list[dict[str, object]] = []
    for _ in range(count):
        name, position = _read_bytes(body, position, stop)
        content, position = _read_bytes(body, position, stop)
        if name is None:
            raise CorruptData(f"a header in the batch at offset {body.base_offset} has no name")
        found.append({"key": name.decode("utf-8", "replace"), "value": content})
    return found or None, position
