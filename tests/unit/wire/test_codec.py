"""Decoding ends in a message or in WireError, whatever the bytes are."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.wire.apis import APIS, APIS_BY_NAME, Api
from moldau.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_request_frame,
    encode_response_frame,
)
from moldau.wire.frames import WireError, client_id_of, parse_request_header, parse_response_header
from moldau.wire.schema import message_class

from .instances import instance

DAMAGED_PER_VERSION = 60
METADATA, HEARTBEAT, FETCH = (APIS_BY_NAME[name].key for name in ("Metadata", "BrokerHeartbeat", "Fetch"))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_damaged_request_is_decoded_or_refused(api: Api) -> None:
    """Also a test of kio's native reader, which ends the process over a length that it believes."""
    chance = random.Random(api.name)
    for version in range(api.min_version, api.max_version + 1):
        struct = message_class("request", api.key, version)
        for _ in range(DAMAGED_PER_VERSION):
            body = bytearray(encode_request(api.key, version, instance(struct, chance)))
            for _ in range(chance.choice((1, 1, 2, 5))):
                damage(body, chance)
            try:
                message = decode_request(api.key, version, memoryview(body), 0)
            except WireError:
                continue
            encode_request(api.key, version, message)


def damage(body: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(body) + 1)
    match chance.randrange(4):
        case 0:
            del body[place:]
        case 1:
            body[place : place + 1] = chance.randbytes(1)
        case 2:
            body[place : place + 5] = chance.choice(
                (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff")
            )
        case _:
            body[place:place] = chance.randbytes(3)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b"\x7f\xff\xff\xff"),  # 2^31 - 1 topics
        (1, b"\xff\xff\xff\xfe"),  # -2 topics
        (0, b"\xff\xff\xff\xff"),  # null, which version 0 does not have
        (1, b"\0\0\0\1\xff\xff"),  # a null name
        (1, b"\0\0\0\1\xff\xf9"),  # a name of -7 bytes
        (1, b"\0\0\0\1\0\5abc"),  # a name longer than the message
        (1, b"\0\0\0\1\0\2\xff\xff"),  # no UTF-8
        (1, b""),
        (12, b"\xff\xff\xff\xff\x0f"),  # 2^32 - 2 topics
        (12, b"\xff\xff\xff\xff\xff\xff\xff\xff"),  # a varint without an end
        (12, b"\1\1\0\xff\xff\xff\xff\x0f"),  # 2^32 - 1 tagged fields
        (12, b"\1\1\0\1\7\xff\xff\xff\xff\x0f"),  # a tagged field of 4 GB
    ],
)
def test_lies_in_a_metadata_request_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_request(METADATA, version, memoryview(body), 0)


def test_bytes_after_a_request_are_ignored() -> None:
    """librdkafka 2.16 leaves three of them behind a Metadata request for all topics, and Kafka does not mind."""
    for version, body in ((1, b"\0\0\0\0"), (12, b"\1\1\0\0")):
        expected = decode_request(METADATA, version, memoryview(body), 0)
        assert decode_request(METADATA, version, memoryview(body + b"\xff\xff\xff"), 0) == expected


def test_tagged_fields_that_this_version_does_not_know_are_skipped() -> None:
    topic = SimpleNamespace(topic_id=None, name="orders")
    request = SimpleNamespace(
        topics=[topic], allow_auto_topic_creation=True, include_topic_authorized_operations=False
    )
    body = encode_request(METADATA, 12, request)
    assert body[-4:] == b"\0\1\0\0"  # no tags in the topic, two flags, no tags in the request
    newer = body[:-4] + b"\1\x2a\3abc" + b"\1\0" + b"\2\0\1x\x80\1\0"
    expected = decode_request(METADATA, 12, memoryview(body), 0)
    assert decode_request(METADATA, 12, memoryview(newer), 0) == expected


def test_known_tagged_fields_are_kept_beside_unknown_ones() -> None:
    directory = UUID(int=5)
    request = SimpleNamespace(
        broker_id=1,
        broker_epoch=2,
        current_metadata_offset=3,
        want_fence=False,
        want_shut_down=True,
        offline_log_dirs=[directory],
    )
    body = encode_request(HEARTBEAT, 1, request)
    tags = b"\1\0\x11\2" + directory.bytes
    assert body.endswith(tags)
    newer = body[: -len(tags)] + b"\3" + tags[1:] + b"\5\1x" + b"\6\0"
    assert decode_request(HEARTBEAT, 1, memoryview(newer), 0).offline_log_dirs == (directory,)
    lying = body[: -len(tags)] + b"\1\0\x12\2" + directory.bytes + b"x"
    with pytest.raises(WireError):
        decode_request(HEARTBEAT, 1, memoryview(lying), 0)


def test_unknown_tagged_fields_inside_a_known_one_are_skipped() -> None:
    replica = SimpleNamespace(replica_id=7, replica_epoch=9)
    request = SimpleNamespace(
        max_wait=0, min_bytes=0, max_bytes=0, isolation_level=0, session_id=0, session_epoch=0, topics=[],
        forgotten_topics_data=[], rack_id="", replica_state=replica,
    )  # fmt: skip
    body = encode_request(FETCH, 15, request)
    state = b"\0\0\0\7" + (9).to_bytes(8, "big")
    assert body.endswith(b"\1\1\x0d" + state + b"\0")
    newer = body[:-16] + b"\1\1\x0f" + state + b"\1\x09\0"
    found = decode_request(FETCH, 15, memoryview(newer), 0).replica_state
    assert (found.replica_id, found.replica_epoch) == (7, 9)


def test_an_unknown_api_or_version_is_refused() -> None:
    for api_key, version in ((4, 0), (0, 2), (0, 99), (18, -1)):
        with pytest.raises(WireError):
            decode_request(api_key, version, memoryview(b""), 0)


def test_frames_of_both_directions_are_read_back() -> None:
    request: Any = SimpleNamespace(client_software_name="moldau", client_software_version="1")
    frame = memoryview(encode_request_frame(18, 4, 5, "client", request))[4:]
    key, version, correlation_id, client_id_stop, position = parse_request_header(frame)
    assert (key, version, correlation_id) == (18, 4, 5)
    assert client_id_of(frame, client_id_stop) == "client"
    assert decode_request(key, version, frame, position).client_software_name == "moldau"
    response = SimpleNamespace(error_code=0, api_keys=[], throttle_time=3)
    frame = memoryview(encode_response_frame(18, 4, 5, response))[4:]
    assert parse_response_header(frame, 18, 4) == (5, 4)
    assert decode_response(18, 4, frame, 4).throttle_time.total_seconds() == 0.003
