"""Kafka's VerifiableProducer and VerifiableConsumer run clean: all is acknowledged, read once and in order, and exit
code 0 follows; also where the broker is killed with -9 and comes back while they run.

`--target kafka` runs the same on Apache Kafka. (TransactionalMessageCopier is in test_transactions.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from bench.raw import RawConnection
from bench.server import MoldauServer, Server
from interop.clients.confluent import Confluent
from interop.verifiable import (
    PROTOCOLS,
    Tools,
    acknowledged,
    check_read,
    committed,
    read_by_partition,
)
from stored import read_partition

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-java")]

PARTITIONS = 3
NewTopic = Callable[..., str]


@pytest.fixture
def tools(requires_kafka: Distribution, target: str, tmp_path: Path) -> Iterator[Tools]:
    with Tools(requires_kafka, target, tmp_path) as tools:
        yield tools


@pytest.fixture
def server(request: pytest.FixtureRequest, requires_kafka: Distribution, tmp_path: Path) -> Iterator[Server]:
    """A broker of the target's kind to be killed."""
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test kills its broker: it takes no address as --target.")
    kind = MoldauServer if wanted == "moldau" else KafkaServer
    with kind(tmp_path / "broker") as server:
        yield server


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_message_is_acknowledged_and_read_once_in_order(
    tools: Tools, new_topic: NewTopic, protocol: str
) -> None:
    topic, count = new_topic(f"verifiable-{protocol}", partitions=PARTITIONS), 3000
    consumer = tools.consume(topic, topic, count, protocol)
    places = acknowledged(tools.produce(topic, count, "--throughput", "-1"), count)
    consumer.ended_clean()
    found = read_by_partition(consumer)
    assert {(p, offset): value for p, read in found.items() for offset, value in read} == places
    for read in found.values():
        assert [offset for offset, _ in read] == list(range(len(read)))
        values = [int(value) for _, value in read]
        assert values == sorted(values)
    assert all(commit["success"] for commit in consumer.events("offsets_committed"))
    assert committed(consumer) == {partition: len(read) for partition, read in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_or_out_of_order_while_the_broker_is_killed(
    requires_kafka: Distribution, server: Server, tmp_path: Path, protocol: str
) -> None:
    """An idempotent producer tries again until all is stored, once; the consumer is in one group throughout."""
    topic, count = "survivors", 4000
    Confluent(server.bootstrap_servers).create(topic, partitions=PARTITIONS)
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=2147483647\n")
    with Tools(requires_kafka, server.bootstrap_servers, tmp_path) as tools:
        consumer = tools.consume(topic, "readers", count, protocol)
        producer = tools.produce(topic, count, "--throughput", "400", "--command-config", str(config))
        for seen in (count // 5, count // 2):
            producer.wait_for("producer_send_success", seen)
            consumer.wait_for("record_data", seen // 2)
            server.kill()
            server.start()
        places = acknowledged(producer, count)
        consumer.ended_clean()
    check_stored(server, topic, places)
    check_read(read_by_partition(consumer), places, committed(consumer), count)


def check_stored(server: Server, topic: str, places: dict[tuple[int, int], str]) -> None:
    """The log holds what was acknowledged, where it was acknowledged, and nothing else; each partition in order."""
    stored: dict[tuple[int, int], str] = {}
    with RawConnection(server.bootstrap_servers) as connection:
        for partition in range(PARTITIONS):
            records = read_partition(connection, topic, partition, 0)
            values = [int(record.value or b"") for record in records]
            assert values == sorted(values), f"partition {partition} is out of order"
            stored |= {(partition, record.offset): str(v) for record, v in zip(records, values, strict=True)}
    assert stored == places
