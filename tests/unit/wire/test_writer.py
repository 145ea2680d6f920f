"""The compiled writers say what kio's writers say, and take any object that has the attributes."""

from __future__ import annotations

import io
import random
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13 import response as metadata
from kio.serial import entity_writer

from moldau.wire.apis import APIS, APIS_BY_NAME, Api
from moldau.wire.codec import decode_request, decode_response, encode_request, encode_response
from moldau.wire.schema import Direction, message_class
from moldau.wire.writer import compile_writer

from .instances import instance

INSTANCES_PER_CLASS = 12


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def without_class(message: Any) -> Any:
    """The same attributes on objects of no class in particular."""
    if is_dataclass(message):
        return SimpleNamespace(**{f.name: without_class(getattr(message, f.name)) for f in fields(message)})
    return [without_class(item) for item in message] if isinstance(message, tuple) else message


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("direction", ["request", "response"])
def test_every_message_is_written_as_kio_writes_it_and_reads_back(api: Api, direction: Direction) -> None:
    chance = random.Random(f"{api.name} {direction}")
    encode = encode_request if direction == "request" else encode_response
    decode = decode_request if direction == "request" else decode_response
    for version in range(api.min_version, api.max_version + 1):
        struct = message_class(direction, api.key, version)
        for _ in range(INSTANCES_PER_CLASS):
            message = instance(struct, chance)
            expected = kio_bytes(message)
            assert encode(api.key, version, message) == expected
            assert encode(api.key, version, without_class(message)) == expected
            assert decode(api.key, version, memoryview(bytearray(b"head" + expected)), 4) == message


def newest_metadata() -> metadata.MetadataResponse:
    partition = metadata.MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=0,
        leader_id=1,
        leader_epoch=4,
        replica_nodes=(1, 2),
        isr_nodes=(1,),
        offline_replicas=(2,),
    )
    topic = metadata.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="orders",
        topic_id=UUID(int=8),
        is_internal=False,
        partitions=(partition,),
    )
    broker = metadata.MetadataResponseBroker(node_id=1, host="localhost", port=9092, rack=None)
    return metadata.MetadataResponse(
        throttle_time=timedelta(milliseconds=7),
        brokers=(broker,),
        cluster_id="cluster",
        controller_id=1,
        topics=(topic,),
        error_code=ErrorCode.none,
    )


@pytest.mark.parametrize("version", range(14))
def test_the_newest_answer_is_written_in_every_version(version: int) -> None:
    key = APIS_BY_NAME["Metadata"].key
    body = encode_response(key, version, newest_metadata())
    message = decode_response(key, version, memoryview(body), 0)
    newest = newest_metadata()
    for name in {f.name for f in fields(message)} - {"brokers", "topics", "cluster_authorized_operations"}:
        assert getattr(message, name) == getattr(newest, name)
    assert message.topics[0].name == "orders"
    assert message.topics[0].partitions[0].replica_nodes == (1, 2)
    assert message.brokers[0].host == "localhost"
    if 8 <= version <= 10:  # a field that version 11 dropped: the schema's default stands in
        assert message.cluster_authorized_operations == -(2**31)


def test_a_dropped_field_that_the_object_has_is_written() -> None:
    key = APIS_BY_NAME["Metadata"].key
    answer = without_class(newest_metadata())
    answer.cluster_authorized_operations = 264
    message = decode_response(key, 9, memoryview(encode_response(key, 9, answer)), 0)
    assert message.cluster_authorized_operations == 264


def test_a_missing_attribute_is_not_written_as_something_else() -> None:
    answer = without_class(newest_metadata())
    del answer.topics[0].partitions[0].leader_epoch
    with pytest.raises(AttributeError):
        encode_response(APIS_BY_NAME["Metadata"].key, 13, answer)


def test_a_null_is_not_written_where_the_version_has_none() -> None:
    answer = without_class(newest_metadata())
    answer.topics[0].name = None
    encode_response(APIS_BY_NAME["Metadata"].key, 12, answer)
    with pytest.raises(AttributeError):
        encode_response(APIS_BY_NAME["Metadata"].key, 11, answer)
    answer.topics = None
    with pytest.raises(TypeError):
        encode_response(APIS_BY_NAME["Metadata"].key, 13, answer)


def test_integers_pass_for_error_codes_and_times() -> None:
    key = APIS_BY_NAME["Metadata"].key
    answer = without_class(newest_metadata())
    answer.throttle_time = 7
    answer.error_code = answer.topics[0].error_code = 0
    answer.topics[0].topic_id = UUID(int=8).bytes
    assert encode_response(key, 13, answer) == encode_response(key, 13, newest_metadata())


@pytest.mark.parametrize(
    ("time", "expected_ms"),
    [
        (None, -1),
        (-1, -1),
        (1_700_000_000_123, 1_700_000_000_123),
        (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
    ],
)
def test_a_timestamp_is_an_integer_a_datetime_or_none(time: Any, expected_ms: int) -> None:
    partition = SimpleNamespace(index=0, error_code=0, base_offset=1, log_append_time=time)
    answer = SimpleNamespace(
        responses=[SimpleNamespace(name="t", partition_responses=[partition])], throttle_time=0
    )
    body = encode_response(APIS_BY_NAME["Produce"].key, 3, answer)
    assert body[-12:-4] == expected_ms.to_bytes(8, "big", signed=True)


def test_tagged_fields_at_their_default_are_left_out_whatever_class_they_have() -> None:
    key = APIS_BY_NAME["Fetch"].key
    partition = SimpleNamespace(
        partition_index=0, error_code=0, high_watermark=0, last_stable_offset=0, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=b"",
    )  # fmt: skip
    topic = SimpleNamespace(topic_id=None, partitions=[partition])
    answer = SimpleNamespace(throttle_time=0, error_code=0, session_id=0, responses=[topic])
    without = encode_response(key, 17, answer)
    answer.node_endpoints = []
    partition.current_leader = SimpleNamespace(leader_id=-1, leader_epoch=-1)
    partition.diverging_epoch = None
    assert encode_response(key, 17, answer) == without
    partition.current_leader = SimpleNamespace(leader_id=3, leader_epoch=-1)
    assert encode_response(key, 17, answer) != without


def test_a_writer_compiled_for_one_class_alone_needs_all_its_fields() -> None:
    writer = compile_writer(message_class("response", APIS_BY_NAME["Metadata"].key, 9))
    with pytest.raises(AttributeError):
        writer(newest_metadata())
