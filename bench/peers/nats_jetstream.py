"""NATS with nats-py: a stream of JetStream in files; it is read in batches, and as it comes by an ordered consumer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.measure import WorkNotDone
from bench.peers.debian import program, version_of
from bench.peers.port import TIMEOUT_S, Peer
from bench.server import HOST, Server

T = TypeVar("T")
IN_FLIGHT = 1000
READ_AT_ONCE = 1000
CONFIG = """
listen: "{host}:{port}"
jetstream {{ store_dir: "{data}", max_file_store: 20GB }}
"""


class NatsServer(Server):
    name = "NATS"
    clean_exit_code = 1  # of a server that is told to end by SIGTERM

    def command(self) -> Sequence[str]:
        config = self.folder / "nats.conf"
        config.write_text(CONFIG.format(host=HOST, port=self.port, data=self.data))
        return [program("nats-server"), "-c", str(config)]

    def is_ready(self) -> bool:
        """It says so when JetStream has begun."""
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return b"Server is ready" in (self.folder / "stderr.txt").read_bytes()


class NatsClient:
    """Its library is for asyncio: a loop of its own runs each piece of work."""

    def __init__(self, server: Server) -> None:
        self._runner = asyncio.Runner()
        self._nats = self._run(nats.connect(f"nats://{HOST}:{server.port}"))
        self._stream = self._nats.jetstream(publish_async_max_pending=IN_FLIGHT)

    def make(self, log: str) -> None:
        self._run(self._stream.add_stream(name=log, subjects=[log], storage=StorageType.FILE))

    def write_one_by_one(self, log: str, count: int, value: bytes) -> list[float]:
        async def write() -> list[float]:
            latencies = []
            for _ in range(count):
                started = time.perf_counter()
                await self._stream.publish(log, value)
                latencies.append(time.perf_counter() - started)
            return latencies

        return self._run(write())

    def write_all(self, log: str, count: int, value: bytes) -> None:
        async def write() -> None:
            confirmed = [await self._stream.publish_async(log, value) for _ in range(count)]
            for each in confirmed:
                await each

        self._run(write())

    def write_paced(self, log: str, rate: int, count: int, value: Callable[[], bytes]) -> None:
        async def write() -> None:
            started = time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
                await self._stream.publish(log, value())

        self._run(write())

    def read(self, log: str, count: int, take: Callable[[bytes], object]) -> None:
        async def read() -> None:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await self._stream.pull_subscribe(log, stream=log, config=config)
            left = count
            while left:
                messages = await reader.fetch(min(READ_AT_ONCE, left), timeout=TIMEOUT_S)
                for message in messages:
                    take(message.data)
                left -= len(messages)

        self._run(read())

    def close(self) -> None:
        self._run(self._nats.close())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except nats.errors.Error as problem:
            raise WorkNotDone(f"NATS: {problem!r}") from problem


def _server(folder: Path) -> Server:
    return NatsServer(folder)


NATS = Peer("NATS JetStream", "nats-py", _server, NatsClient, lambda: version_of("nats-server"))
