"""A blocking Kafka connection that sends frames made before: client libraries cost more than the broker.

Messages are kio's, coded by kio itself and not by Moldau, so that tests may use it as a second opinion. It
leaves out retries, leaders and batching. Nor is it a connection of `peers`: an exchange costs it less than half of what
it costs an event loop, which would be what the load measures, and tests send through it what no client sends.
"""

from __future__ import annotations

import datetime
import io
import socket
import struct
from typing import Any, Self, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

CLIENT_ID = "raw"
PRODUCE_VERSION = 9
FETCH_VERSION = 12  # the last one that names topics by name
METADATA_VERSION = 12
_SIZE = struct.Struct(">i")


def request_class(api_key: int, version: int) -> type[Any]:
    return load_request_schema(api_key, version)


def frame(request: Any, correlation_id: int = 1) -> bytes:
    """A whole request: size, header, body."""
    buffer = io.BytesIO()
    entity_writer(request.__header_schema__)(
        buffer,
        request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=correlation_id,
            client_id=CLIENT_ID,
        ),
    )
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return _SIZE.pack(len(body)) + body


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int = 1) -> Any:
    cls = request_class(0, PRODUCE_VERSION)
    topics = nested(cls, "topic_data")
    return cls(
        acks=acks,
        timeout=datetime.timedelta(seconds=30),
        topic_data=(
            topics(
                name=topic,
                partition_data=(nested(topics, "partition_data")(index=partition, records=batch),),
            ),
        ),
    )


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    *,
    bytes_max: int = 1 << 20,
    wait_ms: int = 500,
    bytes_min: int = 1,
) -> Any:
    cls = request_class(1, FETCH_VERSION)
    topics = nested(cls, "topics")
    partitions = nested(topics, "partitions")
    wanted = partitions(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return cls(
        max_wait=datetime.timedelta(milliseconds=wait_ms),
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        topics=(topics(topic=topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def metadata_request() -> Any:
    """All topics, with their ids."""
    return request_class(3, METADATA_VERSION)(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def api_versions_request() -> Any:
    return request_class(18, 3)(client_software_name=CLIENT_ID, client_software_version="1")


def nested(struct_class: type[Any], field: str) -> type[Any]:
    """The class of the elements of an array field."""
    annotation = struct_class.__dataclass_fields__[field].type
    array = next((part for part in get_args(annotation) if get_origin(part) is tuple), annotation)
    found: type[Any] = get_args(array)[0]
    return found


class RawConnection:
    def __init__(self, address: str, *, timeout_s: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next answer, from its correlation id on; ConnectionError where the broker hung up."""
        head = self._stream.read(4)
        if len(head) < 4:
            raise ConnectionError("the broker closed the connection")
        size = _SIZE.unpack(head)[0]
        body: bytes = self._stream.read(size)
        if len(body) < size:
            raise ConnectionError("the broker closed the connection in the middle of an answer")
        return body

    def ask(self, request: Any) -> Any:
        """Send one request and read its answer as kio's response of the same version."""
        self.send(frame(request))
        return decode_answer(request, self.receive())

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def decode_answer(request: Any, body: bytes) -> Any:
    answer = load_response_schema(request.__api_key__, request.__version__)
    _, position = entity_reader(answer.__header_schema__)(body, 0)
    message, _ = entity_reader(answer)(body, position)
    return message
