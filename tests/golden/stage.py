"""The topics that the cases ask about: a few records, a producer's state, an aborted transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from moldau.records.record import Record, build_batch

from .recorder import Kafka

TOPIC = "golden-orders"
COMPACTED = "golden-compacted"
APPEND_TIME = "golden-append-time"
MISSING = "golden-missing"
TIMESTAMP_MS = 1_700_000_000_000


def batch(*values: bytes | None, key: bytes | None = b"key", **options: Any) -> bytes:
    records = [
        Record(offset, TIMESTAMP_MS + offset, key, value, (("header", b"x"), ("empty", None)))
        for offset, value in enumerate(values)
    ]
    return build_batch(records, **options)


def create_topic(kafka: Kafka, name: str, partitions: int = 1, **configs: str) -> None:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
    kafka.ask("CreateTopics", 7, {"topics": [topic], "timeout": 30_000})


def delete_topic(kafka: Kafka, name: str) -> None:
    kafka.ask("DeleteTopics", 6, {"topics": [{"name": name}], "timeout": 30_000})


def set_the_stage(kafka: Kafka) -> None:
    """Topics with a few records, a producer's state, and an aborted transaction."""
    create_topic(kafka, TOPIC, 2)
    create_topic(kafka, COMPACTED, cleanup_policy="compact")
    create_topic(kafka, APPEND_TIME, message_timestamp_type="LogAppendTime")
    kafka.ask(
        "FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["golden"]}
    )  # makes the coordinator's topic
    retried(
        lambda: kafka.ask("InitProducerId", 4, {"transactional_id": None})
    )  # gets the broker a block of ids
    producer = retried(
        lambda: kafka.ask("InitProducerId", 5, {"transactional_id": "golden", "transaction_timeout": 60_000})
    )
    ids = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    v3 = {f"v3_and_below_{key}": value for key, value in {"transactional_id": "golden", **ids}.items()}
    v3["v3_and_below_topics"] = [{"name": TOPIC, "partitions": [0, 1]}]
    retried(
        lambda: (
            kafka.ask("AddPartitionsToTxn", 3, v3).results_by_topic_v3_and_below[0].results_by_partition[0]
        )
    )
    for partition in 0, 1:
        records = batch(b"aborted", transactional=True, base_sequence=0, **ids)
        data = [{"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}]
        kafka.ask(
            "Produce", 11, {"transactional_id": "golden", "acks": -1, "timeout": 30_000, "topic_data": data}
        )
    retried(lambda: kafka.ask("EndTxn", 3, {"transactional_id": "golden", "committed": False, **ids}))


def retried(ask: Callable[[], Any], seconds: float = 30) -> Any:
    """The first answer without an error: a new broker needs a while for its coordinators."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        code = getattr(answer, "error_code", None) or getattr(answer, "partition_error_code", 0)
        if not code:
            return answer
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker answers {answer}")
        time.sleep(0.5)
