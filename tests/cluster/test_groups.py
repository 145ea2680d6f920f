"""Groups and their offsets over the ends of a broker: killed, stopped, started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.server import MoldauServer
from interop.party import Party

TOPIC, GROUP, PARTITIONS = "work", "workers", 4


def produce(server: MoldauServer, first: int, count: int) -> set[str]:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(TOPIC, f"message {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return {f"message {number}" for number in range(first, first + count)}


def committed(server: MoldauServer) -> list[int]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": GROUP, "log_level": 0})
    try:
        places = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=30)
        return [place.offset for place in places]
    finally:
        consumer.close()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_members_go_on_and_no_commit_is_lost_over_the_end_of_the_broker(
    tmp_path: Path, is_killed: bool
) -> None:
    with MoldauServer(tmp_path / "broker") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        with Party(server.bootstrap_servers, TOPIC, GROUP) as party:
            members = [party.join("confluent"), party.join("kafka-python")]
            party.wait_shared(PARTITIONS)
            values = produce(server, 0, 40)
            party.wait_read(values)
            party.wait_until(lambda: committed(server) == [10] * PARTITIONS, "all to be committed")

            if is_killed:
                server.kill()
            else:
                server.stop()
            server.start()
            assert committed(server) == [10] * PARTITIONS
            values = produce(server, 40, 40)
            party.wait_read(values)
            party.wait_until(lambda: committed(server) == [20] * PARTITIONS, "all to be committed")
            for member in members:
                member.leave()
        assert committed(server) == [20] * PARTITIONS
