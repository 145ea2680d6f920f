"""What one client wrote, every other client reads the same: key, value, headers, timestamp, offset.

Each writer fills one partition with every codec in turn; each reader reads it whole. Readers that do not know
each other's code agreeing on mixed codecs is the strongest sign that the broker stores what it was given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest

from interop.clients import CLIENTS, CODECS, Client, Message, Received
from stored import stored_headers

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-cross")]

COMPRESSIBLE = b"the same words again and again, " * 20
TIMESTAMP_MS = int(time.time()) * 1000 - 3_600_000  # young enough for retention
MESSAGES = [
    Message(COMPRESSIBLE, b"key"),
    Message(COMPRESSIBLE, None),
    Message(COMPRESSIBLE, b""),
    Message(None, b"tombstone"),
    Message(b"", b"empty value"),
    Message(COMPRESSIBLE, b"headers", (("trace", b"1"), ("content", b"text"), ("trace", b"again"))),
    Message("Vltava – Moldau ✓".encode() * 10, "klíč".encode()),
]
CODEC_IDS = {codec: number for number, codec in enumerate(CODECS)}

Written = tuple[str, list[Received]]


@pytest.fixture(scope="module")
def written_by(clients: Callable[[str], Client], new_topic: Callable[..., str]) -> Callable[[str], Written]:
    @cache
    def write(name: str) -> Written:
        """A topic with every codec's messages, and what a reader must find in it (timestamps where set)."""
        writer, topic = clients(name), new_topic(f"cross-{name}")
        expected: list[Received] = []
        for codec in CODECS:
            messages = [stamped(message, writer, len(expected) + i) for i, message in enumerate(MESSAGES)]
            writer.produce(topic, messages, codec=codec)
            expected += [
                Received(m.value, m.key, m.headers, m.timestamp_ms, len(expected) + i)
                for i, m in enumerate(messages)
            ]
        return topic, expected

    return write


def stamped(message: Message, writer: Client, number: int) -> Message:
    when = TIMESTAMP_MS + number * 1000 if writer.sets_timestamps else None
    return Message(message.value, message.key, message.headers, when)


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_every_client_wrote(
    writer: str,
    reader: str,
    clients: Callable[[str], Client],
    written_by: Callable[[str], Written],
) -> None:
    topic, expected = written_by(writer)
    received = clients(reader).consume(topic, offset=0, count=len(expected))
    if not clients(writer).sets_timestamps:
        reference = clients("confluent-kafka").consume(topic, offset=0, count=len(expected))
        assert [m.timestamp_ms for m in received] == [m.timestamp_ms for m in reference]
        now_ms = time.time() * 1000
        assert all(0 <= now_ms - (m.timestamp_ms or 0) < 300_000 for m in received)
        received = [Received(m.value, m.key, m.headers, None, m.offset) for m in received]
    assert received == expected


@pytest.mark.parametrize("writer", CLIENTS)
def test_batches_are_kept_in_the_codec_that_the_client_chose(
    writer: str, target: str, written_by: Callable[[str], Written]
) -> None:
    topic, expected = written_by(writer)
    codecs_by_offset = {
        offset: batch.attributes & 7
        for batch in stored_headers(target, topic)
        for offset in range(batch.base_offset, batch.base_offset + batch.count)
    }
    # A client may leave a single small message as it is where compressing does not pay; never a larger batch.
    for codec, first in zip(CODECS, range(0, len(expected), len(MESSAGES)), strict=True):
        kept = {codecs_by_offset[offset] for offset in range(first, first + len(MESSAGES))}
        assert CODEC_IDS[codec] in kept and kept <= {0, CODEC_IDS[codec]}, codec


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", [name for name, client in CLIENTS.items() if client.carries_any_bytes])
def test_any_bytes_survive_every_codec(
    writer: str, codec: str, clients: Callable[[str], Client], new_topic: Callable[..., str]
) -> None:
    every_byte = bytes(range(256))
    message = Message(every_byte * 300, every_byte, (("all", every_byte), ("none", b"")), TIMESTAMP_MS)
    topic = new_topic("bytes")
    clients(writer).produce(topic, [message], codec=codec)
    for reader, kind in CLIENTS.items():
        if kind.carries_any_bytes:
            received = clients(reader).consume(topic, offset=0, count=1)
            assert received == [Received(message.value, message.key, message.headers, TIMESTAMP_MS, 0)], (
                reader
            )


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", [name for name, client in CLIENTS.items() if client.sends_nulls_only])
def test_a_message_may_have_neither_key_nor_value(
    writer: str, reader: str, clients: Callable[[str], Client], new_topic: Callable[..., str]
) -> None:
    topic = new_topic("nulls")
    clients(writer).produce(topic, [Message(None, None)])
    (message,) = clients(reader).consume(topic, offset=0, count=1)
    assert (message.key, message.value, message.headers) == (None, None, ())
