"""Messages to bytes and back, by API and version.

Reading is kio's native reader behind a guard (`wire.guard`), writing a writer compiled from kio's classes
(`wire.writer`). Each is made at the first use of its API and version, in 1 to 3 ms.

Whatever the bytes are, decoding ends in a message or in `WireError`, and allocates no more than a small
multiple of them. Encoding takes any object with the attributes of the newest version's class; what it
cannot encode is a mistake of ours and raises what Python raises.

What may be large is read and written in slices (`decoding`, `encoding`): by the same compilers and by kio's readers,
element by element (`wire.sliced_reader`). Reading has a limit on the elements of a request, writing one on the size of
an answer.

Produce requests and Produce and Fetch responses can be coded here too (clients and tests do); the broker's
own way for them is `wire.produce` and `wire.fetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any

from kio.serial import entity_reader

from moldau.runtime.line import Slices
from moldau.wire.apis import APIS
from moldau.wire.frames import request_frame, response_frame
from moldau.wire.guard import Cut, SlicedGuard, compile_guard, compile_sliced_guard, make_cuts
from moldau.wire.primitives import WireError
from moldau.wire.schema import Direction, message_class
from moldau.wire.sliced_reader import SlicedReader, sliced_reader
from moldau.wire.writer import SlicedWriter, Writer, compile_sliced_writer, compile_writer

Decoder = Callable[[memoryview, int], Any]

_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}
_request_encoders: dict[tuple[int, int], Writer] = {}
_response_encoders: dict[tuple[int, int], Writer] = {}
_sliced_decoders: dict[tuple[int, int], tuple[SlicedGuard, SlicedReader]] = {}
_sliced_writers: dict[tuple[int, int], SlicedWriter] = {}


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """The body of a request, from `position` to the end of its frame, as kio's class of this version."""
    decode = _request_decoders.get((api_key, version))
    if decode is None:
        decode = _request_decoders[api_key, version] = _decoder("request", api_key, version)
    return decode(frame, position)


def decoding(api_key: int, version: int, frame: memoryview, position: int) -> Slices[Any]:
    """`decode_request` in slices, for one that is large. It has no more than REQUEST_ELEMENTS_MAX elements."""
    struct = message_class("request", api_key, version)
    sliced = _sliced_decoders.get((api_key, version))
    if sliced is None:
        sliced = _sliced_decoders[api_key, version] = compile_sliced_guard(struct), sliced_reader(struct)
    walk, read = sliced
    cuts: list[Cut] = []
    try:
        if (yield from walk(frame, position, len(frame), cuts)) > len(frame):
            raise WireError(f"{struct.__name__} ends too early")
        yield
        message, _ = yield from read(*_cut(frame, position, cuts))
    except Exception as reason:
        raise _wire_error(struct, reason) from None
    yield
    return message


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


def encoding(api_key: int, version: int, message: Any) -> Slices[list[bytes]]:
    """`encode_response` in slices and in pieces, for one that may be large; `writer.TooLarge` past ANSWER_BYTES_MAX."""
    write = _sliced_writers.get((api_key, version))
    if write is None:
        struct = message_class("response", api_key, version)
        newest = message_class("response", api_key, APIS[api_key].max_version)
        write = _sliced_writers[api_key, version] = compile_sliced_writer(struct, newest)
    return write(message)


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
        try:
            # Bytes after the message are ignored, as Kafka does: librdkafka 2.16 leaves three of them behind a
            # Metadata request for all topics.
            if guard(frame, position, len(frame), cuts) > len(frame):
                raise WireError(f"{struct.__name__} ends too early")
            return read(*_cut(frame, position, cuts))[0]
        except Exception as reason:
            raise _wire_error(struct, reason) from None

    return decode


def _cut(frame: memoryview, position: int, cuts: list[Cut]) -> tuple[memoryview, int]:
    """What a guard has looked at, as kio's readers take it, and where it begins."""
    if cuts:
        return memoryview(make_cuts(frame, position, len(frame), cuts)), 0
    return frame.toreadonly(), position


def _wire_error(struct: type[Any], reason: Exception) -> WireError:
    """What is wrong with a message. kio has errors of its own, Python some for values out of range."""
    if isinstance(reason, WireError):
        return reason
    if isinstance(reason, (StructError, IndexError)):
        return WireError(f"{struct.__name__} ends too early")
    return WireError(f"malformed {struct.__name__}: {reason}")
