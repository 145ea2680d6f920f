"""Requests that no client should send: whether Kafka answers them or closes the connection, so does Moldau."""

from __future__ import annotations

import struct

from moldau.broker.handlers import ROUTES
from moldau.wire.codec import encode_request
from moldau.wire.schema import Defaults, message_class

from ..conversation import Conversation, scenario

HEAD = struct.Struct(">hhi")


def bodies(talk: Conversation) -> None:
    """Bodies that end too early, lie about their lengths, or go on after their end."""
    key = next(route.api_key for route in ROUTES.values() if route.name == talk.api)
    whole = encode_request(key, talk.version, Defaults(message_class("request", key, talk.version)))
    talk.send_body("no body", b"")
    for size in {1, len(whole) // 2, len(whole) - 1} - {0, len(whole)}:
        talk.send_body(f"the first {size} bytes", whole[:size])
    talk.send_body("large lengths", b"\x7f" * max(len(whole), 12))
    talk.send_body("negative lengths", b"\xfe\xff\xff\xff" + whole)


for _route in ROUTES.values():
    if _route.is_internal:  # between brokers of one make
        continue
    scenario(_route.name, "malformed bodies")(bodies)


@scenario("ApiVersions", "frames", versions=[0])
def frames(talk: Conversation) -> None:
    def send(case: str, content: bytes, *, size: int | None = None) -> None:
        talk.send_raw(case, struct.pack(">i", len(content) if size is None else size) + content)

    client = b"\0\1x"
    good = HEAD.pack(18, 0, 1) + client
    send("a good one", good)
    send("no client id", HEAD.pack(18, 0, 1) + b"\xff\xff")
    send("no client id at all", HEAD.pack(18, 0, 1))
    send("a client id that is too long", HEAD.pack(18, 0, 1) + b"\0\x09x")
    send("a client id of length -2", HEAD.pack(18, 0, 1) + b"\xff\xfex")
    send("a client id that is no text", HEAD.pack(18, 0, 1) + b"\0\1\xff")
    send("bytes after the request", good + b"more")
    send("an empty frame", b"")
    send("a short frame", b"\0\x12\0\0")
    send("a negative size", b"", size=-1)
    send("an enormous size", b"", size=2**31 - 1)
    send("more than is allowed", b"", size=200 << 20)
    send("a negative correlation id", HEAD.pack(18, 0, -5) + client)
    for key in -1, 7, 999, 32767:
        send(f"API {key}", HEAD.pack(key, 0, 1) + client)
    for version in -1, 5, 99, 32767:
        send(f"ApiVersions {version}", HEAD.pack(18, version, 1) + client + b"\0")
    flexible = HEAD.pack(18, 3, 1) + client
    body = b"\2x\2x\0"
    send("a tagged field in the header", flexible + b"\1\5\2ab" + body)
    send("tagged fields that do not end", flexible + b"\5\5\2ab")
    send("tagged fields out of order", flexible + b"\2\5\0\4\0" + body)
    send("a tagged field twice", flexible + b"\2\5\0\5\0" + body)
    send("an unknown tagged field in the body", flexible + b"\0\2x\2x\1\7\3abc")


@scenario("ApiVersions", "versions yet to come", versions=[5, 99, 32767])
def future_versions(talk: Conversation) -> None:
    talk.send_body("answered in version 0", b"\2x\2x\0", answered_in=0)


@scenario("ApiVersions", "unsupported versions", versions=[0])
def unsupported(talk: Conversation) -> None:
    for route in ROUTES.values():
        if route.name == "ApiVersions":
            continue
        for version in -1, route.min_version - 1, route.max_version + 1, 99:
            if version == -1 or version > route.max_version or version >= 0:
                head = HEAD.pack(route.api_key, version, 1) + b"\0\1x"
                frame = head + bytes(20)
                talk.send_raw(f"{route.name} version {version}", struct.pack(">i", len(frame)) + frame)
