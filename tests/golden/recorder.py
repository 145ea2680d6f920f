"""A client that asks a live Kafka one thing after the other and keeps what was said, and the table of what to ask."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response, encode_request
from moldau.wire.frames import SIZE, parse_response_header, request_header
from moldau.wire.schema import Defaults, field_specs, message_class

from .store import Exchange

CLIENT_ID = "golden"
NO_SUCH_ID = bytes(15) + b"\7"


def build(struct: type[Any], values: dict[str, Any]) -> Any:
    """An object with the fields of `struct`: those given, else their defaults."""
    message = Defaults(struct)
    for spec in field_specs(struct):
        if spec.name in values:
            value = values[spec.name]
            if spec.struct and value is not None:
                value = (
                    [build(spec.struct, item) for item in value]
                    if spec.is_array
                    else build(spec.struct, value)
                )
            setattr(message, spec.name, value)
    return message


class Kafka:
    """One connection, asked and answered one by one."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def exchange(self, api_name: str, version: int, body: bytes) -> tuple[bytes, bytes]:
        self._correlation_id += 1
        request = request_header(APIS_BY_NAME[api_name].key, version, self._correlation_id, CLIENT_ID) + body
        self._socket.sendall(SIZE.pack(len(request)) + request)
        (size,) = SIZE.unpack(self._stream.read(4))
        return request, self._stream.read(size)

    def ask(self, api_name: str, version: int, values: dict[str, Any]) -> Any:
        return self.exchange_values(api_name, version, values)[2]

    def exchange_values(
        self, api_name: str, version: int, values: dict[str, Any]
    ) -> tuple[bytes, bytes, Any]:
        key = APIS_BY_NAME[api_name].key
        body = encode_request(key, version, build(message_class("request", key, version), values))
        request, response = self.exchange(api_name, version, body)
        _, position = parse_response_header(memoryview(response), key, version)
        return request, response, decode_response(key, version, memoryview(response), position)


class Recorder:
    """Asks for one version of one API and keeps what was said; and asks other things beside the record."""

    def __init__(self, kafka: Kafka, api_name: str, version: int, kept: list[Exchange]) -> None:
        self.kafka = kafka
        self.api_name = api_name
        self.version = version
        self._kept = kept

    def ask(self, case: str, values: dict[str, Any]) -> Any:
        request, response, answer = self.kafka.exchange_values(self.api_name, self.version, values)
        self._kept.append(Exchange(self.api_name, self.version, case, request, response))
        return answer

    def ask_raw(self, case: str, version: int, body: bytes) -> None:
        """A request that no codec knows."""
        self._kept.append(
            Exchange(self.api_name, version, case, *self.kafka.exchange(self.api_name, version, body))
        )

    def topic_id(self, name: str) -> Any:
        return self.kafka.ask("Metadata", 13, {"topics": [{"name": name}]}).topics[0].topic_id

    def named(self, name: str, *, ids_from: int, key: str = "name") -> dict[str, Any]:
        """A topic as this version names it. The topic that is missing has an id that no topic has."""
        if self.version < ids_from:
            return {key: name}
        return {"topic_id": self.topic_id(name) or NO_SUCH_ID}


Cases = Callable[[Recorder], None]
CASES: dict[str, Cases] = {}


def cases(api_name: str) -> Callable[[Cases], Cases]:
    def register(function: Cases) -> Cases:
        CASES[api_name] = function
        return function

    return register
