"""Requests to the controller: whatever is in them, nobody is held up by reading it."""

from __future__ import annotations

import pytest

from moldau.wire.cluster import (
    FEED,
    LOST_PER_PIECE,
    REGISTER,
    REQUEST_VALUE_BYTES_MAX,
    VALUE_BYTES_MAX,
    kind_of,
    pack_registration,
    pack_request,
    parse_request,
    registration_body,
    registration_pieces,
)
from moldau.wire.frames import WireError

NAME = "n" * 249


def test_a_request_is_read_as_it_was_written() -> None:
    frame = memoryview(b"head" + pack_request(FEED, {"broker": 7}))
    assert (kind_of(frame, 4), parse_request(frame, 4)) == (FEED, {"broker": 7})


@pytest.mark.parametrize("count", [0, 1, LOST_PER_PIECE, LOST_PER_PIECE + 1, 10_000])
def test_a_registration_is_read_piece_by_piece(count: int) -> None:
    lost = [(NAME, number) for number in range(count)]
    frame = memoryview(pack_registration({"id": 7}, lost))
    assert kind_of(frame, 0) == REGISTER
    value, *pieces = registration_pieces(registration_body(frame, 0))
    assert value == {"id": 7}
    assert [(name, index) for piece in pieces for name, index in piece] == lost
    assert all(len(piece) <= LOST_PER_PIECE for piece in pieces)


def test_what_is_too_long_is_not_read() -> None:
    long = b"[" * (REQUEST_VALUE_BYTES_MAX + 1)
    with pytest.raises(WireError, match="too much"):
        parse_request(memoryview(bytes((FEED,)) + long), 0)
    with pytest.raises(WireError, match="wrong length"):
        next(registration_pieces(len(long).to_bytes(4, "big") + long))
    with pytest.raises(WireError, match="too much"):
        registration_body(memoryview(bytes(VALUE_BYTES_MAX + 2)), 0)


@pytest.mark.parametrize(
    "body", [b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2[]\0", b"\0\0\0\3[]", b"\0\0\0\2[["]
)
def test_a_registration_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        list(registration_pieces(body))


def test_a_request_without_a_kind_is_refused() -> None:
    with pytest.raises(WireError):
        kind_of(memoryview(b""), 0)
