"""One blocking connection to a broker: requests out, answers in, each in the order of the other.

It begins with ApiVersions. Nothing is retried here: after an `OSError` or `WireError` the connection is to be closed,
and another one made.
"""

from __future__ import annotations

import socket
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, Self

from moldau.spark.blocks.errors import ReadFailed
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import parse_response_header
from moldau.wire.primitives import WireError

Address = tuple[str, int]

CLIENT_ID: Final = "moldau-spark"
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 1 << 30
"""More than a broker sends by any setting: one batch may exceed what was asked for, and then comes whole."""
BUFFER_BYTES_MIN: Final = 64 * 1024
_SIZE: Final = Struct(">i")


class Connection:
    def __init__(self, address: Address, client_id: str = CLIENT_ID) -> None:
        self.address = address
        self.client_id = client_id
        self._correlation_id = 0
        self._awaited: list[tuple[int, int, int]] = []  # API key, version, correlation id
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket = socket.create_connection(address, CONNECT_TIMEOUT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(ANSWER_TIMEOUT_S)
            self._learn_versions()
        except BaseException:
            self.close()
            raise

    @property
    def is_quiet(self) -> bool:
        """No answer is on its way."""
        return not self._awaited

    def version_of(self, api_key: int, min_version: int, max_version: int) -> int:
        """The newest version that the broker serves too."""
        theirs_min, theirs_max = self._versions.get(api_key, (0, -1))
        version = min(theirs_max, max_version)
        if version < max(theirs_min, min_version):
            name = APIS[api_key].name
            raise ReadFailed(
                f"broker {self.address[0]}:{self.address[1]} serves {name} in the versions {theirs_min} to "
                f"{theirs_max}, and this reader knows {min_version} to {max_version}: it needs Kafka 2.7 or newer."
            )
        return version

    def next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        number = self.next_correlation_id()
        self.send(
            api_key, version, number, encode_request_frame(api_key, version, number, self.client_id, message)
        )
        frame, position = self.receive()
        return decode_response(api_key, version, frame, position)

    def send(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        self._awaited.append((api_key, version, correlation_id))
        self._socket.sendall(frame)

    def receive(self) -> tuple[memoryview, int]:
        """The answer to the oldest request, and where its body begins. It is valid until the next call."""
        api_key, version, expected = self._awaited.pop(0)
        head = memoryview(bytearray(_SIZE.size))
        self._fill(head)
        (size,) = _SIZE.unpack(head)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes")
        if size > len(self._buffer):
            self._buffer = bytearray(size)  # a new one: whoever looks at the old one still may
        frame = memoryview(self._buffer)[:size]
        self._fill(frame)
        correlation_id, position = parse_response_header(frame, api_key, version)
        if correlation_id != expected:
            raise WireError(f"answer {correlation_id} instead of {expected}")
        return frame, position

    def _fill(self, view: memoryview) -> None:
        position = 0
        while position < len(view):
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            position += received

    def _learn_versions(self) -> None:
        answer = self.ask(
            API_VERSIONS, 0, SimpleNamespace(client_software_name="", client_software_version="")
        )
        if answer.error_code:
            raise WireError(f"ApiVersions is answered with {answer.error_code.name}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
