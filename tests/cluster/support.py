"""What the tests of one broker process share: topics, and reading a partition with no client library in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from interop.clients.confluent import Confluent
from moldau.bench.raw import RawConnection, fetch_request
from moldau.records.batch import read_header
from moldau.records.record import Record, build_batch, read_records

FETCH_BYTES = 8 << 20


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    Confluent(bootstrap).create(topic, partitions=partitions, configs=dotted)
    with RawConnection(bootstrap) as connection:  # Kafka answers before its brokers have heard of the topic
        wait_until(lambda: error_of_fetch(connection, topic, partitions - 1) == 0, what=f"{topic} to be led")


def error_of_fetch(connection: RawConnection, topic: str, partition: int) -> int:
    answer = connection.ask(fetch_request(topic, partition, 0, wait_ms=0, bytes_min=0))
    return int(answer.responses[0].partitions[0].error_code)


def one_record_batch(value: bytes, key: bytes | None = None, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    return build_batch([Record(0, timestamp_ms, key, value)])


def read_partition(connection: RawConnection, topic: str, partition: int, offset: int = 0) -> list[Record]:
    """All records from an offset on, as they are stored."""
    records: list[Record] = []
    while True:
        request = fetch_request(topic, partition, offset, bytes_max=FETCH_BYTES, wait_ms=0, bytes_min=0)
        answer = connection.ask(request)
        (found,) = answer.responses[0].partitions
        assert found.error_code == 0, found
        fresh = [record for record in split_records(found.records or b"") if record.offset >= offset]
        if not fresh:
            return records
        records += fresh
        offset = fresh[-1].offset + 1


def split_records(data: bytes) -> Iterator[Record]:
    """The records of whole batches; a batch that was cut off at the end is left out."""
    position = 0
    while position + 61 <= len(data):
        size = read_header(data, position).length + 12
        if position + size > len(data):
            return
        yield from read_records(data[position : position + size])
        position += size


def wait_until(condition: Callable[[], bool], timeout_s: float = 10, what: str = "") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.02)
