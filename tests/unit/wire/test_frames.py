"""Headers: kio's bytes, and WireError for whatever is none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseV1
from kio.serial import entity_writer

from moldau.wire.frames import (
    WireError,
    client_id_of,
    parse_request_header,
    parse_response_header,
    request_frame,
    request_header,
    response_frame,
    response_header,
)
from moldau.wire.primitives import pack_uvarint, read_uvarint


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "Straße-語"])
@pytest.mark.parametrize(
    ("api_key", "version", "header"), [(3, 8, HeaderV1), (3, 9, HeaderV2), (17, 1, HeaderV1)]
)
def test_request_headers_are_kios(
    api_key: int, version: int, header: type[Any], client_id: str | None
) -> None:
    expected = kio_bytes(
        header(request_api_key=api_key, request_api_version=version, correlation_id=-7, client_id=client_id)
    )
    assert request_header(api_key, version, -7, client_id) == expected
    frame = memoryview(bytearray(expected + b"body"))
    *parsed, client_id_stop, position = parse_request_header(frame)
    assert parsed == [api_key, version, -7]
    assert client_id_of(frame, client_id_stop) == client_id
    assert position == len(expected)


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    header = request_header(3, 9, 1, "x")[:-1] + b"\2\0\3abc\7\0"
    assert parse_request_header(memoryview(header + b"body"))[4] == len(header)


@pytest.mark.parametrize(
    ("header", "client_id"),
    [
        (request_header(3, 8, 1, None)[:-2] + b"\xff\xfe", None),
        (request_header(3, 8, 1, "cl")[:-2] + b"\xff\xff", "\ufffd\ufffd"),
    ],
)
def test_a_strange_client_id_is_taken_as_kafka_does(header: bytes, client_id: str | None) -> None:
    assert client_id_of(memoryview(header), parse_request_header(memoryview(header))[3]) == client_id


@pytest.mark.parametrize(
    "header",
    [
        b"",
        request_header(3, 8, 1, "client")[:9],
        request_header(3, 8, 1, "client")[:-1],
        request_header(3, 9, 1, "client")[:-1],
        request_header(3, 9, 1, None)[:-1] + b"\1\0\5abc",
        request_header(3, 9, 1, None)[:-1] + b"\xff\xff\xff\xff\x0f",
        request_header(3, 9, 1, None)[:-1] + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_a_malformed_request_header_is_refused(header: bytes) -> None:
    with pytest.raises(WireError):
        parse_request_header(memoryview(header))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_within_the_frame_or_are_refused(frame: bytes) -> None:
    try:
        *_, position = parse_request_header(memoryview(frame))
    except WireError:
        return
    assert 10 <= position <= len(frame)


@pytest.mark.parametrize(
    ("api_key", "version", "header"), [(3, 8, ResponseV0), (3, 9, ResponseV1), (18, 4, ResponseV0)]
)
def test_response_headers_are_kios(api_key: int, version: int, header: type[Any]) -> None:
    expected = kio_bytes(header(correlation_id=99))
    assert response_header(api_key, version, 99) == expected
    assert (
        response_frame(api_key, version, 99, b"body")
        == (len(expected) + 4).to_bytes(4, "big") + expected + b"body"
    )
    assert parse_response_header(memoryview(expected + b"body"), api_key, version) == (99, len(expected))
    with pytest.raises(WireError):
        parse_response_header(memoryview(expected)[:-1], api_key, version)


def test_a_request_frame_has_its_size_in_front() -> None:
    frame = request_frame(18, 4, 1, "c", b"body")
    assert frame == (len(frame) - 4).to_bytes(4, "big") + request_header(18, 4, 1, "c") + b"body"


@given(st.integers(0, 2**32 - 1))
def test_varints_survive_a_round_trip(value: int) -> None:
    packed = pack_uvarint(value)
    assert read_uvarint(memoryview(packed + b"x"), 0) == (value, len(packed))
