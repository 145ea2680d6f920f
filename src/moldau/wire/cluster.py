"""Moldau's own API between brokers and their controller: what Kafka has no message for.

Three requests, told apart by their first byte: FEED (a long poll for the changes of the cluster behind a position,
KRaft's fetch of its metadata log), REGISTER (a broker comes, with more to say than BrokerRegistration has room for)
and REPORT (the disk of a partition has failed, or is there again). Values are JSON; a feed's answer is followed by
pieces of records as `metadata.codec` makes them. It is not advertised.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from moldau.wire.frames import WireError

CLUSTER_KEY: Final = 31_000
CLUSTER_VERSION: Final = 0
FEED, REGISTER, REPORT = 0, 1, 2
VALUE_BYTES_MAX: Final = 4 * 1024 * 1024

_LENGTH: Final = Struct(">i")


def pack_request(kind: int, value: dict[str, Any]) -> bytes:
    return bytes((kind,)) + json.dumps(value, separators=(",", ":")).encode()


def parse_request(frame: memoryview, position: int) -> tuple[int, dict[str, Any]]:
    try:
        return frame[position], _object(frame[position + 1 :])
    except IndexError:
        raise WireError("a request to the controller ends too early") from None


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


def _object(data: memoryview) -> dict[str, Any]:
    if len(data) > VALUE_BYTES_MAX:
        raise WireError("too much for a message between brokers")
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise WireError("a message between brokers is no JSON") from None
    if not isinstance(value, dict):
        raise WireError("a message between brokers is no object")
    return value
