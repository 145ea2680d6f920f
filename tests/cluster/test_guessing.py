"""A crowd that guesses passwords, says nothing or sends giant frames: who is known does not notice, others get in."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import pytest
from confluent_kafka.admin import AdminClient

from cluster.canary import Canary
from interop.clients import CLIENTS
from interop.sasl_broker import SaslBroker, Tokens
from moldau.base import limits

pytestmark = pytest.mark.slow

CROWD = 300
FLOOD_S = 8.0
CROWD_ADDRESS = "127.0.0.2"
HANDSHAKE = struct.pack(">hhih", 17, 1, 1, -1) + b"\0\x05PLAIN"
FRAME = struct.Struct(">i")
Deed = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[int]]


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(FRAME.unpack(await reader.readexactly(4))[0])


async def guess(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """One guess; whether it was told that it is wrong."""
    writer.write(FRAME.pack(len(HANDSHAKE)) + HANDSHAKE)
    await answer(reader)
    message = b"\0alice\0guessed"
    request = struct.pack(">hhih", 36, 0, 2, -1) + FRAME.pack(len(message)) + message
    writer.write(FRAME.pack(len(request)) + request)
    return int(b"Invalid username or password" in await answer(reader))


async def say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> int:
    await reader.read(1)
    return 0


async def send_giants(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(FRAME.pack(524_288) + struct.pack(">hhih", 17, 1, 1, -1) + b"x" * 500_000)
    await reader.read(1)
    return 0


async def crowd(port: int, deed: Deed) -> int:
    """How often it was told that it is wrong."""
    deadline_s = time.monotonic() + FLOOD_S

    async def one() -> int:
        told = 0
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", port, local_addr=(CROWD_ADDRESS, 0)
                    )
                    try:
                        told += await deed(reader, writer)
                    finally:
                        writer.close()
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(0.01)
        return told

    return sum(await asyncio.gather(*(one() for _ in range(CROWD))))


@pytest.mark.parametrize("deed", [guess, say_nothing, send_giants])
def test_a_crowd_of_strangers_harms_nobody(tmp_path: Path, deed: Deed) -> None:
    tokens = Tokens()
    with SaslBroker(tmp_path, tokens) as broker:
        security = broker.security("SCRAM-SHA-256")
        CLIENTS["confluent-kafka"](broker.bootstrap_servers, security).create("song")
        canary = Canary(broker.bootstrap_servers, "song", security.librdkafka())
        canary.start()
        waits_s: list[float] = []

        async def come_and_go() -> None:
            settings = {
                "bootstrap.servers": broker.bootstrap_servers,
                "log_level": 0,
                **security.librdkafka(),
            }
            deadline_s = time.monotonic() + FLOOD_S
            while time.monotonic() < deadline_s:
                began_s = time.monotonic()
                await asyncio.to_thread(AdminClient(settings).list_topics, timeout=10)
                waits_s.append(time.monotonic() - began_s)
                await asyncio.sleep(0.2)

        async def both() -> int:
            told, _ = await asyncio.gather(crowd(broker.port, deed), come_and_go())
            return told

        told = asyncio.run(both())
        canary.end()
        assert canary.problems == []
        assert canary.steps > 50
        assert median(waits_s) < limits.GUESS_DELAY_S_MAX, "who guesses waits as long, and nobody else"
        if deed is guess:
            rounds = FLOOD_S / limits.GUESS_DELAY_S_MAX + 2
            assert 0 < told <= limits.GUESSES_WAITING_PER_ADDRESS_MAX * rounds
        print(f"{deed.__name__}: {told} told, {canary.steps} steps of {canary.slowest_step_s:.3f} s at most,")
        print(f"{len(waits_s)} log-ins of {max(waits_s):.3f} s at most")
