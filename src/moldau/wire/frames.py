"""Frames and headers: what surrounds every request and response.

A frame is an int32 size and that many bytes: a header and a body. Requests have header v1 or v2 (flexible),
responses v0 or v1 (flexible); `wire.apis` says which. Headers are read and written by hand, since every
request pays for them.

Whatever a peer sends, parsing ends in a value or in `WireError`, and nothing is allocated on the word of a
length in it.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from moldau.wire.apis import FLEXIBLE_FROM, NEVER, RESPONSE_HEADER_FLEXIBLE_FROM
from moldau.wire.primitives import WireError as WireError
from moldau.wire.primitives import skip_tagged_fields

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = SIZE.size
REQUEST_HEADER_BYTES_MIN: Final = (
    8  # API key, version, correlation id: what a frame needs to be answerable at all
)

_REQUEST_HEADER: Final = Struct(">hhih")  # API key, version, correlation id, length of the client id
_CORRELATION: Final = Struct(">i")
_CORRELATION_FLEXIBLE: Final = Struct(">ix")  # and no tagged fields
_FRAME_HEAD: Final = Struct(">ii")  # size, correlation id
_FRAME_HEAD_FLEXIBLE: Final = Struct(">iix")

CLIENT_ID_START: Final = 10
NO_CLIENT_ID: Final = -1

RequestHeader = tuple[int, int, int, int, int]


def parse_request_header(frame: memoryview) -> RequestHeader:
    """`(api_key, version, correlation_id, client_id_stop, body_position)` of a frame without its size.

    The client's id is read by `client_id_of`, for those who want it: the data path does not.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        stop = position = CLIENT_ID_START + length
        if length < 0:
            stop, position = NO_CLIENT_ID, CLIENT_ID_START
        if version >= FLEXIBLE_FROM.get(api_key, NEVER):
            # The client id stays a legacy string even here, so that any version of a header can be read.
            if frame[position]:
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
    except (StructError, IndexError) as reason:
        raise WireError(f"malformed request header: {reason}") from None
    if position > len(frame):
        raise WireError("the request ends within its header")
    return api_key, version, correlation_id, stop, position


def client_id_of(frame: memoryview, stop: int) -> str | None:
    return None if stop == NO_CLIENT_ID else str(frame[CLIENT_ID_START:stop], "utf-8", "replace")


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Header v1, or v2 where this version of the API is flexible."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = _REQUEST_HEADER.pack(api_key, version, correlation_id, length) + name
    return head + b"\0" if version >= FLEXIBLE_FROM.get(api_key, NEVER) else head


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Header v0, or v1 where this version of the API is flexible (never for ApiVersions)."""
    if version >= RESPONSE_HEADER_FLEXIBLE_FROM.get(api_key, NEVER):
        return _CORRELATION_FLEXIBLE.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A whole request, with its size."""
    head = request_header(api_key, version, correlation_id, client_id)
    return SIZE.pack(len(head) + len(body)) + head + body


def response_frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response, with its size."""
    if version >= RESPONSE_HEADER_FLEXIBLE_FROM.get(api_key, NEVER):
        return _FRAME_HEAD_FLEXIBLE.pack(5 + len(body), correlation_id) + body
    return _FRAME_HEAD.pack(4 + len(body), correlation_id) + body


def parse_response_header(frame: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """`(correlation_id, body_position)` of a frame without its size, answering a request of this version."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = 4
        if version >= RESPONSE_HEADER_FLEXIBLE_FROM.get(api_key, NEVER):
            position = skip_tagged_fields(frame, position)
    except (StructError, IndexError) as reason:
        raise WireError(f"malformed response header: {reason}") from None
    if position > len(frame):
        raise WireError("the response ends within its header")
    return correlation_id, position
