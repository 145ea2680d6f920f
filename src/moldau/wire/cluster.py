"""Moldau's own API between brokers and their controller: what Kafka has no message for.

Three requests, told apart by their first byte: FEED (a long poll for the changes of the cluster behind a position,
KRaft's fetch of its metadata log), REGISTER (a broker comes, with more to say than BrokerRegistration has room for)
and REPORT (the disk of a partition has failed, or is there again). Values are JSON; a feed's answer is followed by
pieces of records as `metadata.codec` makes them, and a registration by pieces of what may be much: whoever reads it
can do so piece by piece. It is not advertised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from moldau.wire.frames import WireError

CLUSTER_KEY: Final = 31_000
CLUSTER_VERSION: Final = 0
FEED, REGISTER, REPORT = 0, 1, 2
VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
REQUEST_VALUE_BYTES_MAX: Final = 32 * 1024
"""Of one value that is sent to the controller: of what is worst to parse 1 ms."""
LOST_PER_PIECE: Final = 100

_LENGTH: Final = Struct(">i")


def pack_request(kind: int, value: dict[str, Any]) -> bytes:
    return bytes((kind,)) + json.dumps(value, separators=(",", ":")).encode()


def pack_registration(value: dict[str, Any], lost: Sequence[tuple[str, int]]) -> bytes:
    """`lost`: see `controller.brokers.Registration`."""
    pieces: list[Any] = [value]
    pieces += (lost[start : start + LOST_PER_PIECE] for start in range(0, len(lost), LOST_PER_PIECE))
    out = [bytes((REGISTER,))]
    for piece in pieces:
        data = json.dumps(piece, separators=(",", ":")).encode()
        out += _LENGTH.pack(len(data)), data
    return b"".join(out)


def kind_of(frame: memoryview, position: int) -> int:
    try:
        return frame[position]
    except IndexError:
        raise WireError("a request to the controller ends too early") from None


def parse_request(frame: memoryview, position: int) -> dict[str, Any]:
    """The value of any but a registration."""
    return _object(frame[position + 1 :], REQUEST_VALUE_BYTES_MAX)


def registration_body(frame: memoryview, position: int) -> bytes:
    """What `registration_pieces` takes apart, as it can be kept."""
    body = frame[position + 1 :]
    if len(body) > VALUE_BYTES_MAX:
        raise WireError("too much for a message between brokers")
    return bytes(body)


def registration_pieces(body: bytes) -> Iterator[Any]:
    """The value, and then some of what is lost at a time."""
    position = 0
    while position < len(body):
        try:
            (length,) = _LENGTH.unpack_from(body, position)
        except StructError:
            raise WireError("a registration ends too early") from None
        position += _LENGTH.size
        if not 0 <= length <= min(REQUEST_VALUE_BYTES_MAX, len(body) - position):
            raise WireError("a registration has a wrong length in it")
        yield _parsed(memoryview(body)[position : position + length], REQUEST_VALUE_BYTES_MAX)
        position += length


def pack_answer(value: dict[str, Any], pieces: Sequence[bytes] = ()) -> bytes:
    head = json.dumps(value, separators=(",", ":")).encode()
    out = [_LENGTH.pack(len(head)), head]
    for piece in pieces:
        out += _LENGTH.pack(len(piece)), piece
    return b"".join(out)


def parse_answer(body: memoryview) -> tuple[dict[str, Any], list[bytes]]:
    parts: list[bytes] = []
    position = 0
    try:
        while position < len(body):
            (length,) = _LENGTH.unpack_from(body, position)
            position += _LENGTH.size
            if not 0 <= length <= len(body) - position:
                raise WireError("the controller's answer has a wrong length in it")
            parts.append(bytes(body[position : position + length]))
            position += length
    except StructError:
        raise WireError("the controller's answer ends too early") from None
    if not parts:
        raise WireError("the controller's answer is empty")
    return _object(memoryview(parts[0])), parts[1:]


def _parsed(data: memoryview, bytes_max: int) -> Any:
    if len(data) > bytes_max:
        raise WireError("too much for a message between brokers")
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise WireError("a message between brokers is no JSON") from None


def _object(data: memoryview, bytes_max: int = VALUE_BYTES_MAX) -> dict[str, Any]:
    value = _parsed(data, bytes_max)
    if not isinstance(value, dict):
        raise WireError("a message between brokers is no object")
    return value
