"""The compiled writers say what kio's writers say, and take any object that has the attributes."""

from __future__ import annotations

import io
import random
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_writer

from moldau.wire.apis import APIS, Api
from moldau.wire.codec import decode_request, decode_response, encode_request, encode_response
from moldau.wire.schema import Direction, message_class

from .instances import instance

INSTANCES_PER_CLASS = 12
APIS_AND_VERSIONS = [
    (api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
]


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def without_class(message: Any) -> Any:
    """The same attributes on objects of no class in particular."""
    if is_dataclass(message):
        return SimpleNamespace(**{f.name: without_class(getattr(message, f.name)) for f in fields(message)})
    return [without_class(item) for item in message] if isinstance(message, tuple) else message


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("direction", ["request", "response"])
def test_every_message_is_written_as_kio_writes_it_and_reads_back(api: Api, direction: Direction) -> None:
    chance = random.Random(f"{api.name} {direction}")
    encode = encode_request if direction == "request" else encode_response
    decode = decode_request if direction == "request" else decode_response
    for version in range(api.min_version, api.max_version + 1):
        struct = message_class(direction, api.key, version)
        for _ in range(INSTANCES_PER_CLASS):
            message = instance(struct, chance)
            expected = kio_bytes(message)
            assert encode(api.key, version, message) == expected
            assert encode(api.key, version, without_class(message)) == expected
            assert decode(api.key, version, memoryview(bytearray(b"head" + expected)), 4) == message
