"""What the tests of one broker process share."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.raw import RawConnection, fetch_request
from interop.clients.confluent import Confluent
from moldau.records.record import Record, build_batch


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    Confluent(bootstrap).create(topic, partitions=partitions, configs=dotted)
    with RawConnection(bootstrap) as connection:  # Kafka answers before its brokers have heard of the topic
        wait_until(lambda: error_of_fetch(connection, topic, partitions - 1) == 0, what=f"{topic} to be led")


def error_of_fetch(connection: RawConnection, topic: str, partition: int) -> int:
    answer = connection.ask(fetch_request(topic, partition, 0, wait_ms=0, bytes_min=0))
    return int(answer.responses[0].partitions[0].error_code)


AN_HOUR_AGO_MS = int(time.time()) * 1000 - 3_600_000
"""Young enough for retention."""


def one_record_batch(value: bytes, key: bytes | None = None, timestamp_ms: int = AN_HOUR_AGO_MS) -> bytes:
    return build_batch([Record(0, timestamp_ms, key, value)])


def wait_until(condition: Callable[[], bool], timeout_s: float = 10, what: str = "") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.02)
