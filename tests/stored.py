"""What a broker really keeps: batches and records as they are stored, fetched with no client library in between."""

from __future__ import annotations

from collections.abc import Iterator

from bench.raw import RawConnection, fetch_request
from moldau.records.batch import BatchHeader, crc_of, read_header
from moldau.records.record import Record, read_records

FETCH_BYTES = 8 << 20


def read_batches(connection: RawConnection, topic: str, partition: int = 0, offset: int = 0) -> list[bytes]:
    """All batches from an offset on, each whole and with a right checksum."""
    batches: list[bytes] = []
    while True:
        request = fetch_request(topic, partition, offset, bytes_max=FETCH_BYTES, wait_ms=0, bytes_min=0)
        (found,) = connection.ask(request).responses[0].partitions
        assert found.error_code == 0, found
        fresh = list(split_batches(found.records or b""))
        if not fresh:
            return batches
        batches += fresh
        last = read_header(fresh[-1])
        offset = last.base_offset + last.last_offset_delta + 1


def split_batches(data: bytes) -> Iterator[bytes]:
    """The whole batches; one that was cut off at the end is left out."""
    position = 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        size = header.length + 12
        if position + size > len(data):
            return
        batch = data[position : position + size]
        assert crc_of(batch, 0, size) == header.crc, header
        yield batch
        position += size


def read_partition(
    connection: RawConnection, topic: str, partition: int = 0, offset: int = 0
) -> list[Record]:
    batches = read_batches(connection, topic, partition, offset)
    return [record for batch in batches for record in read_records(batch) if record.offset >= offset]


def stored_headers(address: str, topic: str, partition: int = 0) -> list[BatchHeader]:
    with RawConnection(address) as connection:
        return [read_header(batch) for batch in read_batches(connection, topic, partition)]
