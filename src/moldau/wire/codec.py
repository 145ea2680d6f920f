"""Messages to bytes and back, by API and version.

Reading is kio's native reader behind a guard (`wire.guard`), writing a writer compiled from kio's classes
(`wire.writer`). Each is made at the first use of its API and version, in 1 to 3 ms.

Whatever the bytes are, decoding ends in a message or in `WireError`, and allocates no more than a small
multiple of them. Encoding takes any object with the attributes of the newest version's class; what it
cannot encode is a mistake of ours and raises what Python raises.

Produce requests and Produce and Fetch responses can be coded here too (clients and tests do); the broker's
own way for them is `wire.produce` and `wire.fetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any

from kio.serial import entity_reader

from moldau.wire.apis import APIS
from moldau.wire.frames import request_frame, response_frame
from moldau.wire.guard import Cut, compile_guard, make_cuts
from moldau.wire.primitives import WireError
from moldau.wire.schema import Direction, message_class
from moldau.wire.writer import Writer, compile_writer

Decoder = Callable[[memoryview, int], Any]

_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Writer] = {}
_response_encoders: dict[tuple[int, int], Writer] = {}


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """The body of a request, from `position` to the end of its frame, as kio's class of this version."""
    decode = _request_decoders.get((api_key, version))
    if decode is None:
        decode = _request_decoders[api_key, version] = _decoder("request", api_key, version)
    return decode(frame, position)


def decode_response(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """The body of a response, from `position` to the end of its frame, as kio's class of this version."""
    decode = _response_decoders.get((api_key, version))
    if decode is None:
        decode = _response_decoders[api_key, version] = _decoder("response", api_key, version)
    return decode(frame, position)


def encode_request(api_key: int, version: int, message: Any) -> bytes:
    """The body of a request of this version, from any object with the newest version's attributes."""
    encode = _request_encoders.get((api_key, version))
    if encode is None:
        encode = _request_encoders[api_key, version] = _encoder("request", api_key, version)
    return encode(message)


def encode_response(api_key: int, version: int, message: Any) -> bytes:
    """The body of a response of this version, from any object with the newest version's attributes."""
    encode = _response_encoders.get((api_key, version))
    if encode is None:
        encode = _response_encoders[api_key, version] = _encoder("response", api_key, version)
    return encode(message)


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> bytes:
    """A whole request: size, header, body."""
    body = encode_request(api_key, version, message)
    return request_frame(api_key, version, correlation_id, client_id, body)


def encode_response_frame(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """A whole response: size, header, body."""
    return response_frame(api_key, version, correlation_id, encode_response(api_key, version, message))


def _encoder(direction: Direction, api_key: int, version: int) -> Writer:
    struct = message_class(direction, api_key, version)
    return compile_writer(struct, message_class(direction, api_key, APIS[api_key].max_version))


def _decoder(direction: Direction, api_key: int, version: int) -> Decoder:
    struct = message_class(direction, api_key, version)
    guard = compile_guard(struct)
    read = entity_reader(struct)

    def decode(frame: memoryview, position: int) -> Any:
        cuts: list[Cut] = []
        stop = len(frame)
        try:
            # Bytes after the message are ignored, as Kafka does: librdkafka 2.16 leaves three of them behind a
            # Metadata request for all topics.
            if guard(frame, position, stop, cuts) > stop:
                raise WireError(f"{struct.__name__} ends too early")
            if cuts:
                frame, position = memoryview(make_cuts(frame, position, stop, cuts)), 0
            message, _ = read(frame.toreadonly(), position)
        except WireError:
            raise
        except (StructError, IndexError):
            raise WireError(f"{struct.__name__} ends too early") from None
        except Exception as reason:  # kio's own errors, and Python's for values out of range
            raise WireError(f"malformed {struct.__name__}: {reason}") from None
        return message

    return decode
