"""Records that could not be decoded, written to another topic: as they are, with headers that say whence and why.

They are there before the rows around them are handed on. A task that runs again writes them again: at least once.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from moldau.spark.blocks.settings import Split

FLUSH_TIMEOUT_S: Final = 120.0
HEADER_TOPIC: Final = "moldau.topic"
HEADER_PARTITION: Final = "moldau.partition"
HEADER_OFFSET: Final = "moldau.offset"
HEADER_REASON: Final = "moldau.reason"
REASON_BYTES_MAX: Final = 1000


class DeadLetters:
    """Of one task; it opens a producer at the first one."""

    def __init__(self, topic: str, config: dict[str, str], split: Split) -> None:
        self._topic = topic
        self._config = config
        self._split = split
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None

    def send(self, batch: pa.RecordBatch, reasons: dict[int, str]) -> None:
        """Written and acknowledged when it returns."""
        producer = self._producer or Producer({"log_level": "3", **self._config})
        self._producer = producer
        for index, reason in reasons.items():
            record = {name: batch[name][index].as_py() for name in ("key", "value", "offset", "headers")}
            while True:
                try:
                    producer.produce(
                        self._topic,
                        record["value"],
                        record["key"],
                        headers=self._headers(record, reason),
                        on_delivery=self._on_delivery,
                    )
                    break
                except BufferError:
                    producer.poll(1.0)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if self._failure is not None:
            raise KafkaException(self._failure)
        if left:
            raise TimeoutError(f"{left} bad records were not written to the topic {self._topic} in time")

    def _headers(self, record: dict[str, Any], reason: str) -> list[tuple[str, bytes | None]]:
        own = [(header["key"], header["value"]) for header in record["headers"] or ()]
        return [
            *own,
            (HEADER_TOPIC, self._split.topic.encode()),
            (HEADER_PARTITION, str(self._split.partition).encode()),
            (HEADER_OFFSET, str(record["offset"]).encode()),
            (HEADER_REASON, reason.encode()[:REASON_BYTES_MAX]),
        ]

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        self._failure = self._failure or error
