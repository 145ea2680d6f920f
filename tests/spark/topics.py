"""Topics for tests of the source: filled by clients, or with batches that were built by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw import RawConnection, produce_request
from moldau.base.errors import ErrorCode
from moldau.spark.blocks.settings import ReadSettings, Split

TIMEOUT_S = 60
NOT_LED_YET = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def schema_of(*names: str) -> pa.Schema:
    """The named columns; all of them where none is named."""
    return pa.schema([(name, COLUMNS[name]) for name in names or COLUMNS])


def settings_of(bootstrap: str, *names: str, **more: Any) -> ReadSettings:
    return ReadSettings(bootstrap, schema_of(*names), **{"timeout_ms": 30_000, **more})


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: object) -> None:
    dotted = {key.replace("_", "."): str(value) for key, value in {"retention_ms": -1, **config}.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, config=dotted)])
    made[name].result(TIMEOUT_S)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # whose futures die with it
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def new_producer(bootstrap: str, **config: object) -> Producer:
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **dotted})


def produce_values(
    bootstrap: str, topic: str, values: Sequence[bytes | None], partition: int = 0, **config: object
) -> None:
    producer = new_producer(bootstrap, **config)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def produce_batch(bootstrap: str, topic: str, batch: bytes, partition: int = 0) -> int:
    """Append a batch as it is; its first offset. A topic that was just made may not be led yet."""
    deadline = time.monotonic() + TIMEOUT_S
    with RawConnection(bootstrap) as connection:
        while True:
            answer = connection.ask(produce_request(topic, partition, batch))
            outcome = answer.responses[0].partition_responses[0]
            if outcome.error_code not in NOT_LED_YET or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    assert outcome.error_code == ErrorCode.none, outcome
    return int(outcome.base_offset)


def whole(topic: str, next_offset: int, first_offset: int = 0, partition: int = 0, **more: Any) -> Split:
    return Split(topic, partition, first_offset, next_offset, **more)
