"""Kafka's ways of Produce, Fetch, ListOffsets and the like that no client library shows; see also interop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from golden.recorder import Kafka
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster

TOPIC, OTHER, STAMPED = "topic", "other", "stamped"
NONE, OUT_OF_RANGE, CORRUPT, UNKNOWN_PARTITION = 0, 1, 2, 3
INVALID_ACKS, INVALID_REQUEST, INVALID_TIMESTAMP = 21, 42, 32
NOT_AUTHORIZED_FOR_TRANSACTIONS, SESSION_NOT_FOUND, INVALID_RECORD = 53, 70, 87
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def kafka(cluster: Cluster) -> Kafka:
    """A connection to a broker whose topics are empty."""
    for name in cluster.topics:
        cluster.delete_topic(name)
    cluster.create_topic(TOPIC, 2)
    cluster.create_topic(OTHER)
    cluster.create_topic(STAMPED, 1, {"message.timestamp.type": "LogAppendTime"})
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return Kafka(host, int(port))


def batch(*values: bytes, **options: Any) -> bytes:
    return build_batch([Record(i, NOW_MS + i, b"key", value) for i, value in enumerate(values)], **options)


def produce(kafka: Kafka, *wanted: tuple[str, int, bytes], acks: int = -1) -> list[tuple[str, int, int, int]]:
    """(topic, partition, error code, base offset) of each answer."""
    data = [{"name": t, "partition_data": [{"index": p, "records": records}]} for t, p, records in wanted]
    answer = kafka.ask("Produce", 9, {"acks": acks, "timeout": 1000, "topic_data": data})
    return [
        (topic.name, partition.index, int(partition.error_code), partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


def fetch(kafka: Kafka, *partitions: dict[str, Any], **values: Any) -> Any:
    usual = {
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    topics = [{"topic": TOPIC, "partitions": [usual | partition for partition in partitions]}]
    request = {"replica_id": -1, "max_bytes": 1000, "session_epoch": -1, "topics": topics}
    return kafka.ask("Fetch", 12, request | values)


def test_of_a_partition_named_twice_the_last_batch_is_taken(kafka: Kafka) -> None:
    assert produce(kafka, (TOPIC, 0, batch(b"a", b"b")), (TOPIC, 0, batch(b"c"))) == [(TOPIC, 0, NONE, 0)]
    assert fetch(kafka, {"partition": 0}).responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (batch(b"b")[:16] + b"\3" + batch(b"b")[17:], CORRUPT),
        (batch(b"b", transactional=True), NOT_AUTHORIZED_FOR_TRANSACTIONS),
    ],
    ids=["unknown format", "of no transaction"],
)
def test_a_batch_can_refuse_the_request_that_it_came_with(kafka: Kafka, bad: bytes, code: int) -> None:
    answers = produce(kafka, (OTHER, 0, batch(b"a")), (TOPIC, 0, bad))
    assert answers == [(OTHER, 0, code, -1), (TOPIC, 0, code, -1)]
    assert produce(kafka, (TOPIC, 9, bad)) == [(TOPIC, 9, code, -1)]
    assert produce(kafka, (OTHER, 0, batch(b"a"))) == [(OTHER, 0, NONE, 0)]


def test_invalid_acks_are_found_after_missing_partitions_and_records(kafka: Kafka) -> None:
    wanted = (TOPIC, 0, batch(b"a")), (TOPIC, 1, b""), (TOPIC, 9, batch(b"a"))
    codes = [code for _, _, code, _ in produce(kafka, *wanted, acks=2)]
    assert codes == [INVALID_ACKS, INVALID_RECORD, UNKNOWN_PARTITION]


def test_a_producer_may_not_say_when_its_records_were_appended(kafka: Kafka) -> None:
    claimed = batch(b"a", log_append_time=NOW_MS)
    assert produce(kafka, (STAMPED, 0, claimed)) == [(STAMPED, 0, INVALID_TIMESTAMP, -1)]
    assert produce(kafka, (TOPIC, 0, claimed)) == [(TOPIC, 0, NONE, 0)]


def test_a_fetch_learns_where_its_log_diverges(kafka: Kafka) -> None:
    produce(kafka, (TOPIC, 0, batch(b"a", b"b")))
    (ahead,) = (
        fetch(kafka, {"partition": 0, "fetch_offset": 9, "last_fetched_epoch": 0}).responses[0].partitions
    )
    assert (ahead.error_code, ahead.diverging_epoch.epoch, ahead.diverging_epoch.end_offset) == (NONE, 0, 2)
    (unknown,) = fetch(kafka, {"partition": 0, "last_fetched_epoch": 5}).responses[0].partitions
    assert unknown.error_code == OUT_OF_RANGE


def test_a_fetch_waits_though_one_of_its_partitions_is_missing(kafka: Kafka) -> None:
    start = time.monotonic()
    answer = fetch(kafka, {"partition": 0}, {"partition": 9}, max_wait=200, min_bytes=1)
    assert time.monotonic() - start > 0.15
    assert [int(p.error_code) for p in answer.responses[0].partitions] == [NONE, UNKNOWN_PARTITION]


def test_a_fetch_does_not_wait_for_more_than_it_may_be_sent(kafka: Kafka) -> None:
    produce(kafka, (TOPIC, 0, batch(b"a" * 100)))
    start = time.monotonic()
    fetch(kafka, {"partition": 0}, max_wait=10_000, min_bytes=1000, max_bytes=50)
    assert time.monotonic() - start < 5


def test_a_session_epoch_needs_a_session(kafka: Kafka) -> None:
    assert fetch(kafka, {"partition": 0}, session_id=0, session_epoch=3).error_code == SESSION_NOT_FOUND


def test_an_offset_asked_for_twice_is_an_invalid_request(kafka: Kafka) -> None:
    wanted = [{"partition_index": index, "timestamp": -1} for index in (0, 1, 0)]
    answer = kafka.ask(
        "ListOffsets", 6, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": wanted}]}
    )
    found = [(p.partition_index, int(p.error_code)) for p in answer.topics[0].partitions]
    assert found == [(0, INVALID_REQUEST), (1, NONE)]


def test_a_leader_epoch_begins_before_the_first_record(kafka: Kafka) -> None:
    wanted = [{"partition_index": 0, "timestamp": -2}]
    answer = kafka.ask(
        "ListOffsets", 6, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": wanted}]}
    )
    assert answer.topics[0].partitions[0].leader_epoch == 0


def test_a_producer_renews_its_id_with_its_epoch_or_not_at_all(kafka: Kafka) -> None:
    def ask(producer_id: int, epoch: int) -> int:
        named = {"transactional_id": None, "producer_id": producer_id, "producer_epoch": epoch}
        return int(kafka.ask("InitProducerId", 4, named).error_code)

    assert [ask(5, -1), ask(-1, 5), ask(5, 0), ask(-1, -1)] == [INVALID_REQUEST, INVALID_REQUEST, NONE, NONE]


def test_a_topic_can_be_deleted_and_made_again_at_once(cluster: Cluster, kafka: Kafka) -> None:
    for _ in range(30):
        cluster.delete_topic(OTHER)
        cluster.create_topic(OTHER)
        assert produce(kafka, (OTHER, 0, batch(b"a"))) == [(OTHER, 0, NONE, 0)]


@pytest.mark.parametrize("others", [0, 1], ids=["alone in its request", "with another partition"])
def test_a_retry_of_a_stored_batch_counts_nothing(cluster: Cluster, kafka: Kafka, others: int) -> None:
    stored = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    produce(kafka, (TOPIC, 0, stored))
    broker = cluster._members[1].broker
    assert broker is not None
    before = broker.replicas.traffic.total()
    assert produce(kafka, (TOPIC, 0, stored), *[(OTHER, 0, batch(b"c"))] * others)[0] == (TOPIC, 0, NONE, 0)
    after = broker.replicas.traffic.total()
    assert (after.messages_in, after.batches_in) == (before.messages_in + others, before.batches_in + others)
