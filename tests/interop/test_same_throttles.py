"""Moldau and Apache Kafka tell a client over a quota to wait for the same time, within a tenth: Kafka counts the bytes
of whole answers to Fetch, Moldau those of the records in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from bench.server import MoldauServer
from golden import recorder
from golden.recorder import Kafka
from moldau.records.record import Record, build_batch

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-same-answers")]

TOPIC = "throttled"
SETTINGS = {"offsets.topic.num.partitions": 1}
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def pair(
    requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kafka, Kafka]]:
    folder = tmp_path_factory.mktemp("same-throttles")
    kafka, moldau = KafkaServer(folder / "kafka", SETTINGS), MoldauServer(folder / "moldau", SETTINGS)
    kafka.launch()
    with moldau, kafka:
        kafka.wait_ready()
        yield client_of(kafka.bootstrap_servers), client_of(moldau.bootstrap_servers)


def client_of(bootstrap: str) -> Kafka:
    host, _, port = bootstrap.rpartition(":")
    client = Kafka(host, int(port))
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    client.ask("CreateTopics", 7, {"topics": [topic], "timeout": 10_000})
    until(lambda: produce(client, 10), lambda answer: not error_of(answer))
    return client


def until(ask: Any, is_so: Any) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so(answer := ask()):
        assert time.monotonic() < deadline_s, answer
        time.sleep(0.1)
    return answer


def produce(client: Kafka, size: int) -> Any:
    records = build_batch([Record(0, int(time.time() * 1000), None, bytes(size))])
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    return client.ask("Produce", 9, {"acks": 1, "timeout": 1000, "topic_data": data})


def error_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(client: Kafka, offset: int, max_bytes: int) -> Any:
    wanted = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    topics = [{"topic": TOPIC, "partitions": [wanted]}]
    return client.ask(
        "Fetch", 12, {"replica_id": -1, "max_bytes": max_bytes, "session_epoch": -1, "topics": topics}
    )


@pytest.fixture(autouse=True)
def client_id(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of its own for each test: brokers remember what a client has used."""
    name = str(request.node.name)
    monkeypatch.setattr(recorder, "CLIENT_ID", name)
    return name


def limit(client: Kafka, **values: float | None) -> None:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    entity = [{"entity_type": "client-id", "entity_name": recorder.CLIENT_ID}]
    entries = [{"entity": entity, "ops": ops}]
    answer = client.ask("AlterClientQuotas", 1, {"entries": entries, "validate_only": False})
    assert not answer.entries[0].error_code

    def described() -> Any:
        component = {"entity_type": "client-id", "match_type": 0, "match": recorder.CLIENT_ID}
        return client.ask("DescribeClientQuotas", 1, {"components": [component], "strict": True})

    set_now = sum(value is not None for value in values.values())
    until(described, lambda answer: sum(len(one.values) for one in answer.entries) == set_now)


def ms(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize(("rate", "size"), [(20_000, 210_000), (5_000, 60_000), (50_000, 600_000)])
def test_a_producer_waits_as_long(pair: tuple[Kafka, Kafka], rate: int, size: int) -> None:
    """A second of what a window allows too much, or two."""
    waits = []
    for client in pair:
        limit(client, producer_byte_rate=float(rate))
        waits.append(ms(produce(client, size)))
        limit(client, producer_byte_rate=None)
        time.sleep(0.5)
    kafka_ms, moldau_ms = waits
    assert kafka_ms > 400 and kafka_ms == pytest.approx(moldau_ms, rel=0.1), waits


def test_a_consumer_waits_as_long_and_gets_as_little(pair: tuple[Kafka, Kafka]) -> None:
    found = []
    for client in pair:
        first, *_ = [produce(client, 30_000) for _ in range(3)]
        offset = int(first.responses[0].partition_responses[0].base_offset)
        limit(client, consumer_byte_rate=5_000.0)
        answers = [fetch(client, offset, 30_100) for _ in range(2)]
        limit(client, consumer_byte_rate=None)
        sizes = [
            sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)
            for answer in answers
        ]
        found.append((sizes, [ms(answer) for answer in answers]))
    (kafka_sizes, kafka_ms), (moldau_sizes, moldau_ms) = found
    assert kafka_sizes == pytest.approx(moldau_sizes, rel=0.01) and kafka_sizes[0] > 30_000, found
    assert kafka_sizes[1] == 0 == kafka_ms[0], found
    assert kafka_ms[1] > 1000 and kafka_ms == pytest.approx(moldau_ms, rel=0.1), found
