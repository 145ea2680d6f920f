"""What the broker really keeps: the headers of the stored batches, fetched with no client in between."""

from __future__ import annotations

from moldau.bench.raw import RawConnection, fetch_request
from moldau.records.batch import BatchHeader, read_header


def stored_batches(address: str, topic: str, partition: int = 0, offset: int = 0) -> list[BatchHeader]:
    with RawConnection(address) as connection:
        answer = connection.ask(
            fetch_request(topic, partition, offset, bytes_max=50_000_000, wait_ms=0, bytes_min=0)
        )
    (found,) = answer.responses[0].partitions
    assert found.error_code == 0, found.error_code
    batches, records, position = [], found.records or b"", 0
    while position + 61 <= len(records):
        header = read_header(records, position)
        batches.append(header)
        position += header.length + 12
    return batches
