"""Single records: reading them out of a batch, and building a batch of them.

Nothing here is on the produce or fetch path, where batches stay opaque bytes. It serves look-up by timestamp,
the broker's own topics, tools and tests. Header keys that are no UTF-8 survive a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from moldau.records import varint
from moldau.records.batch import (
    CONTROL,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    read_header,
)
from moldau.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    DecompressionRefused,
    UnfoldsTooFar,
    compress,
    decompress,
)
from moldau.runtime.ports import Buffer

Header = tuple[str, bytes | None]
RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each."""


class BadRecord(ValueError):
    """A batch whose checksum is right but whose records are not."""


class RecordsTooLarge(BadRecord):
    """They unfold to more than the limit."""


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def records_of(batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The records' bytes, unfolded. BadRecord for an unknown codec or damaged data."""
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    try:
        return decompress(Codec(header.codec_id), packed, limit_bytes)
    except UnfoldsTooFar as refusal:
        raise RecordsTooLarge(str(refusal)) from None
    except DecompressionRefused as refusal:
        raise BadRecord(str(refusal)) from None
    except ValueError:
        raise BadRecord(f"unknown codec {header.codec_id}") from None


def read_records(batch: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """All records of the batch at the start of a buffer."""
    return list(iterate_records(batch, limit_bytes))


def iterate_records(batch: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    header = read_header(batch)
    body = records_of(batch, header, limit_bytes)
    appended_at = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position = 0
    try:
        for _ in range(header.count):
            record, position = _read_record(body, position, header, appended_at)
            yield record
    except (IndexError, varint.BadVarint):
        raise BadRecord("found invalid record structure") from None
    if position != len(body):
        raise BadRecord(f"{len(body) - position} bytes are left after the last record")


def _read_record(
    body: Buffer, position: int, header: BatchHeader, appended_at: int | None
) -> tuple[Record, int]:
    length, start = varint.decode(body, position)
    stop = start + length
    if length < 0 or stop > len(body):
        raise BadRecord(f"record length {length} is out of range")
    timestamp_delta, position = varint.decode(body, start + 1, 10)
    offset_delta, position = varint.decode(body, position)
    key, position = _read_bytes(body, position, stop)
    value, position = _read_bytes(body, position, stop)
    count, position = varint.decode(body, position)
    if not 0 <= count <= stop - position:
        raise BadRecord(f"found invalid number of record headers {count}")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position, stop)
        content, position = _read_bytes(body, position, stop)
        if name is None:
            raise BadRecord("invalid negative header key size")
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    if position != stop:
        raise BadRecord(f"record of {length} bytes, but its fields end after {position - start}")
    timestamp = header.base_timestamp + timestamp_delta if appended_at is None else appended_at
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), stop


def _read_bytes(body: Buffer, position: int, stop: int) -> tuple[bytes | None, int]:
    length, position = varint.decode(body, position)
    if length < 0:
        return None, position
    if length > stop - position:
        raise BadRecord("found invalid record structure")
    return bytes(body[position : position + length]), position + length


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    out = bytearray()
    for record in records:
        body = bytearray(b"\x00")
        body += varint.encode(record.timestamp - base_timestamp)
        body += varint.encode(record.offset - base_offset)
        _append_bytes(body, record.key)
        _append_bytes(body, record.value)
        body += varint.encode(len(record.headers))
        for name, content in record.headers:
            _append_bytes(body, name.encode("utf-8", "surrogateescape"))
            _append_bytes(body, content)
        out += varint.encode(len(body))
        out += body
    return bytes(out)


def _append_bytes(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body += b"\x01"  # -1
    else:
        body += varint.encode(len(content))
        body += content


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """At least one record; offsets ascend and are kept. `log_append_time` stands for all timestamps."""
    first = records[0]
    base_timestamp = first.timestamp
    max_timestamp = max([record.timestamp for record in records])
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    packed_records = compress(codec, encode_records(records, first.offset, base_timestamp), level)
    header = HEADER.pack(
        first.offset,
        HEADER_BYTES + len(packed_records) - LENGTH_AND_BEFORE_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records[-1].offset - first.offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _with_crc(header, packed_records)


def assemble(header: BatchHeader, packed_records: Buffer) -> bytes:
    """Header and (compressed) records as one batch, with the right length and checksum."""
    length = HEADER_BYTES + len(packed_records) - LENGTH_AND_BEFORE_BYTES
    return _with_crc(HEADER.pack(*header._replace(length=length)), packed_records)


def _with_crc(header: bytes, packed_records: Buffer) -> bytes:
    batch = bytearray(header)
    batch += packed_records
    CRC.pack_into(batch, CRC_POSITION, crc_of(batch, 0, len(batch)))
    return bytes(batch)
