"""The driver's consumer against a broker in this process: it waits, commits and measures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from moldau.spark.source.cluster import Cluster
from moldau.spark.source.driver_client import DriverClient
from moldau.spark.source.errors import OffsetsUnavailable
from moldau.spark.source.offsets import TopicPartition
from moldau.spark.source.options import SourceOptions, parse_options
from moldau.testing import Cluster as Brokers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers() as brokers:
        brokers.create_topic("t", partitions=2)
        brokers.create_topic("busy")
        yield brokers


def options(brokers: Brokers, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": "t", "progressGroup": "g"}
    return parse_options(given | {"fetchOffset.retryIntervalMs": "1"} | more, is_stream=True)


def fill(brokers: Brokers, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, b"kk", partition)
    assert producer.flush(TIMEOUT_S) == 0


def test_it_wakes_when_a_record_comes(brokers: Brokers) -> None:
    client = DriverClient(options(brokers))
    latest = Cluster(options(brokers)).latest([A, B])
    assert not client.wait_for_records(latest, 0.2)
    fill(brokers, "t", b"x", partition=1)
    assert client.wait_for_records(latest, TIMEOUT_S)
    after = Cluster(options(brokers)).latest([A, B])
    assert after == latest | {B: latest[B] + 1}
    assert not client.wait_for_records(after, 0.2)
    client.close()


def test_progress_is_committed_once_for_each_position(brokers: Brokers) -> None:
    client = DriverClient(options(brokers))
    for offset in (1, 1, 2, 2):
        client.commit({A: offset, B: 7})
    client.flush()
    client.close()
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap_servers, "group.id": "g"})
    found = consumer.committed([ClientPartition("t", 0), ClientPartition("t", 1)], TIMEOUT_S)
    consumer.close()
    assert [each.offset for each in found] == [2, 7]
    assert Cluster(options(brokers)).committed("g", [A, B]) == {A: 2, B: 7}
    assert Cluster(options(brokers)).committed("another", [A]) == {}


def test_it_sees_how_large_records_are(brokers: Brokers) -> None:
    fill(brokers, "busy", *[b"v" * 98] * 50)
    client = DriverClient(options(brokers, subscribe="busy"))
    assert client.bytes_per_offset({TopicPartition("busy", 0): 0}) == {TopicPartition("busy", 0): 100.0}
    client.close()


def test_topics_are_found_by_name_by_pattern_and_by_partition(brokers: Brokers) -> None:
    assert Cluster(options(brokers)).topics().partitions == {A, B}
    by_pattern = {"subscribePattern": "^[tb]"}
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers}
    found = Cluster(parse_options(given | by_pattern, is_stream=True)).topics()
    assert found.partitions == {A, B, TopicPartition("busy", 0)}
    assert found.ids.keys() == {"t", "busy"}
    assigned = parse_options(given | {"assign": '{"t":[1,5]}'}, is_stream=True)
    assert Cluster(assigned).topics().partitions == {B}


def test_a_topic_that_is_not_there_is_an_error_and_is_not_made(brokers: Brokers) -> None:
    for _ in range(2):
        with pytest.raises(
            OffsetsUnavailable, match="This server does not host this topic-partition: there is no topic x"
        ):
            Cluster(options(brokers, subscribe="x,t")).topics()
    left_out = Cluster(options(brokers, subscribe="x,t", failOnDataLoss="false")).topics()
    assert left_out.partitions == {A, B}


@pytest.mark.parametrize("subscription", [{"subscribe": "t"}, {"subscribePattern": "t"}])
def test_where_no_broker_answers_it_is_said_what_the_client_has_heard_of_them(
    brokers: Brokers, subscription: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.source.cluster.REQUEST_TIMEOUT_S", 1.0)
    given = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "fetchOffset.numRetries": "1"}
    given |= subscription | {"kafka.security.protocol": "SSL", "kafka.reconnect.backoff.ms": "500"}
    with pytest.raises(OffsetsUnavailable, match=r"cannot be had: KafkaError.*; .*SSL"):
        Cluster(parse_options(given, is_stream=True)).topics()
