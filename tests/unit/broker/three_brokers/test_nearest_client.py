"""librdkafka reads from the replica in its own rack (KIP-392)."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.config.replication_keys import RACK_AWARE_SELECTOR

from .real import three_brokers

RACKS = {1: "north", 2: "south", 3: "west"}
TOPIC = "topic"
MESSAGES, SIZE_BYTES = 200, 1000
PATIENCE_S = 60.0


def settings(node_id: int) -> dict[str, str]:
    return {
        "broker.rack": RACKS[node_id],
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "offsets.topic.num.partitions": "3",
    }


def test_a_consumer_with_a_rack_reads_from_the_follower_there(tmp_path: Path) -> None:
    with three_brokers(tmp_path, settings) as brokers:
        bootstrap = brokers[1].bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([new])[TOPIC].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "client.rack": "west",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC])
        read: list[bytes | None] = []
        try:
            for round_ in range(2):  # the second while it reads from the follower
                for number in range(MESSAGES):
                    producer.produce(TOPIC, str((round_, number)).encode().ljust(SIZE_BYTES))
                assert producer.flush(PATIENCE_S) == 0
                deadline_s = time.monotonic() + PATIENCE_S
                while len(read) < (round_ + 1) * MESSAGES:
                    assert time.monotonic() < deadline_s
                    message = consumer.poll(1.0)
                    if message is not None:
                        assert message.error() is None
                        read.append(message.value())
        finally:
            consumer.close()
        sent = [str((r, n)).encode().ljust(SIZE_BYTES) for r in range(2) for n in range(MESSAGES)]
        assert read == sent
        assert brokers[3].metrics.fetched_bytes >= 2 * MESSAGES * SIZE_BYTES
