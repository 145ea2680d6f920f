"""What Apache Kafka said, decoded and encoded to the same bytes: by the codecs, and by hand where we do it by hand.

The bytes are captured by tests/golden/capture.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from golden import store
from moldau.wire.apis import APIS_BY_NAME, is_known
from moldau.wire.codec import decode_request, decode_response, encode_request, encode_response
from moldau.wire.fetch import FETCH, FetchedPartition, pack_fetch_response
from moldau.wire.frames import (
    client_id_of,
    parse_request_header,
    parse_response_header,
    request_header,
    response_header,
)
from moldau.wire.produce import PRODUCE, ProducedPartition, pack_produce_response, parse_produce

EXCHANGES = store.load()
APIS_OF_ONE_BROKER = [
    "ApiVersions",
    "Metadata",
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "ListConfigResources",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DescribeLogDirs",
    "InitProducerId",
    "DescribeProducers",
    "FindCoordinator",
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

known = pytest.mark.parametrize(
    "exchange", [e for e in EXCHANGES if is_known(APIS_BY_NAME[e.api].key, e.version)], ids=lambda e: e.title
)


def of(api: str) -> Any:
    return pytest.mark.parametrize("exchange", [e for e in EXCHANGES if e.api == api], ids=lambda e: e.title)


@known
def test_a_captured_request_is_decoded_and_encoded_the_same(exchange: store.Exchange) -> None:
    key, version, correlation_id, stop, position = parse_request_header(memoryview(exchange.request))
    client_id = client_id_of(memoryview(exchange.request), stop)
    assert (key, version) == (APIS_BY_NAME[exchange.api].key, exchange.version)
    message = decode_request(key, version, memoryview(exchange.request), position)
    header = request_header(key, version, correlation_id, client_id)
    assert header + encode_request(key, version, message) == exchange.request


@known
def test_a_captured_response_is_decoded_and_encoded_the_same(exchange: store.Exchange) -> None:
    key, version = APIS_BY_NAME[exchange.api].key, exchange.version
    correlation_id, position = parse_response_header(memoryview(exchange.response), key, version)
    message = decode_response(key, version, memoryview(exchange.response), position)
    header = response_header(key, version, correlation_id)
    assert header + encode_response(key, version, message) == exchange.response


@of("Produce")
def test_a_captured_produce_request_is_parsed_by_hand(exchange: store.Exchange) -> None:
    _, version, _, _, position = parse_request_header(memoryview(exchange.request))
    message = decode_request(PRODUCE, version, memoryview(exchange.request), position)
    transactional_id, acks, timeout_ms, topics = parse_produce(
        memoryview(exchange.request), position, version
    )
    assert (transactional_id, acks, timeout_ms) == (
        message.transactional_id,
        message.acks,
        ms(message.timeout),
    )
    assert [topic for topic, _ in topics] == [name_of(topic, "name") for topic in message.topic_data]
    assert [
        [(partition, exchange.request[start:stop]) for partition, start, stop in partitions]
        for _, partitions in topics
    ] == [
        [(partition.index, partition.records) for partition in topic.partition_data]
        for topic in message.topic_data
    ]


@of("Produce")
def test_a_captured_produce_response_is_packed_by_hand(exchange: store.Exchange) -> None:
    version = exchange.version
    correlation_id, position = parse_response_header(memoryview(exchange.response), PRODUCE, version)
    message = decode_response(PRODUCE, version, memoryview(exchange.response), position)
    topics = [
        (name_of(topic, "name"), [produced(partition) for partition in topic.partition_responses])
        for topic in message.responses
    ]
    frame = pack_produce_response(
        correlation_id, version, topics, ms(message.throttle_time), endpoints(message)
    )
    assert frame[4:] == exchange.response


@of("Fetch")
def test_a_captured_fetch_response_is_packed_by_hand(exchange: store.Exchange) -> None:
    version = exchange.version
    correlation_id, position = parse_response_header(memoryview(exchange.response), FETCH, version)
    message = decode_response(FETCH, version, memoryview(exchange.response), position)
    topics = [
        (name_of(topic, "topic"), [fetched(partition) for partition in topic.partitions])
        for topic in message.responses
    ]
    pieces = pack_fetch_response(
        correlation_id,
        version,
        ms(message.throttle_time),
        getattr(message, "error_code", 0),
        getattr(message, "session_id", 0),
        topics,
        endpoints(message),
    )
    assert b"".join(pieces)[4:] == exchange.response  # type: ignore[arg-type]


def test_an_unknown_version_of_api_versions_is_answered_with_a_body_of_version_zero() -> None:
    (exchange,) = (e for e in EXCHANGES if e.api == "ApiVersions" and e.version == 99)
    key, version, correlation_id, stop, _ = parse_request_header(memoryview(exchange.request))
    assert (key, version, client_id_of(memoryview(exchange.request), stop)) == (18, 99, "golden")
    assert parse_response_header(memoryview(exchange.response), key, 99) == (correlation_id, 4)
    message = decode_response(key, 0, memoryview(exchange.response), 4)
    assert message.error_code == 35
    assert exchange.response == response_header(key, 99, correlation_id) + encode_response(key, 0, message)


@pytest.mark.parametrize("api_name", APIS_OF_ONE_BROKER)
def test_every_version_that_kafka_serves_is_captured(api_name: str) -> None:
    key = APIS_BY_NAME[api_name].key
    (asked, *_) = (e for e in EXCHANGES if e.api == "ApiVersions" and e.version == 4)
    _, position = parse_response_header(memoryview(asked.response), 18, 4)
    (served,) = (
        api
        for api in decode_response(18, 4, memoryview(asked.response), position).api_keys
        if api.api_key == key
    )
    captured = {e.version for e in EXCHANGES if e.api == api_name and e.version != 99}
    first = max(served.min_version, APIS_BY_NAME[api_name].min_version)  # Produce advertises 0 and serves 3
    assert captured == set(range(first, served.max_version + 1))


def test_the_captured_files_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(store.FOLDER).iterdir()) < 1_000_000


def ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def name_of(topic: Any, key: str) -> str | bytes:
    if hasattr(topic, "topic_id"):
        topic_id: UUID | None = topic.topic_id
        return topic_id.bytes if topic_id else bytes(16)
    return str(getattr(topic, key))


def endpoints(message: Any) -> list[tuple[int, str, int, str | None]]:
    return [
        (node.node_id, node.host, node.port, node.rack) for node in getattr(message, "node_endpoints", ())
    ]


def produced(partition: Any) -> ProducedPartition:
    append_time = partition.log_append_time
    leader = getattr(partition, "current_leader", None)
    return ProducedPartition(
        partition.index,
        partition.error_code,
        partition.base_offset,
        -1 if append_time is None else ms(append_time - EPOCH),
        getattr(partition, "log_start_offset", -1),
        [
            (error.batch_index, error.batch_index_error_message)
            for error in getattr(partition, "record_errors", ())
        ],
        getattr(partition, "error_message", None),
        leader and (leader.leader_id, leader.leader_epoch),
    )


def fetched(partition: Any) -> FetchedPartition:
    aborted = partition.aborted_transactions
    diverging = getattr(partition, "diverging_epoch", None)
    leader = getattr(partition, "current_leader", None)
    return FetchedPartition(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        getattr(partition, "log_start_offset", -1),
        aborted if aborted is None else [(a.producer_id, a.first_offset) for a in aborted],
        getattr(partition, "preferred_read_replica", -1),
        diverging and (diverging.epoch, diverging.end_offset),
        leader and (leader.leader_id, leader.leader_epoch),
        partition.records,
    )
