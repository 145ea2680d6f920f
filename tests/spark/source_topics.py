"""Topics for the tests of the source: made, filled and changed through confluent-kafka, on any broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

TIMEOUT_S = 60.0


class Topics:
    """Of one broker. Names are the callers' business."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        self.admin.create_topics([new])[name].result(TIMEOUT_S)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)

    def trim(self, name: str, partition: int, before_offset: int) -> None:
        """Delete the records before an offset, as retention does."""
        (done,) = self.admin.delete_records([ClientPartition(name, partition, before_offset)]).values()
        done.result(TIMEOUT_S)

    def fill(
        self,
        name: str,
        values: Iterable[object],
        partition: int = 0,
        *,
        keys: Sequence[str] | None = None,
        timestamp_ms: int = 0,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """One record each, in order; all of them are there when this returns."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5})
        for index, value in enumerate(values):
            producer.produce(
                name,
                None if value is None else str(value).encode(),
                keys[index] if keys else None,
                partition,
                timestamp=timestamp_ms,
                headers=headers,
            )
        left = producer.flush(TIMEOUT_S)
        assert not left, f"{left} records were not written"
