"""Redis with redis-py: a stream, with every entry in the append-only file before it is confirmed.

`appendfsync no` leaves the disk to the kernel, as the others do. The default, once a second, would let a confirmed
entry wait in Redis's memory while a sync is under way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from redis import Redis
from redis.exceptions import RedisError

from bench.librdkafka import paced
from bench.measure import WorkNotDone
from bench.peers.debian import program, version_of
from bench.peers.port import TIMEOUT_S, Peer
from bench.server import HOST, Server

PIPELINED = 1000
READ_AT_ONCE = 1000
FIELD = "value"


class RedisServer(Server):
    name = "Redis"

    def command(self) -> Sequence[str]:
        self.data.mkdir(exist_ok=True)
        listen = ("--bind", HOST, "--port", str(self.port), "--dir", str(self.data))
        return [program("redis-server"), *listen, "--appendonly", "yes", "--appendfsync", "no", "--save", ""]

    def is_ready(self) -> bool:
        with contextlib.suppress(RedisError), Redis(HOST, self.port) as client:
            return bool(client.ping())
        return False


class RedisClient:
    def __init__(self, server: Server) -> None:
        self._redis = Redis(HOST, server.port)

    def make(self, log: str) -> None:
        """The first entry makes it."""

    def write_one_by_one(self, log: str, count: int, value: bytes) -> list[float]:
        latencies = []
        for _ in range(count):
            started = time.perf_counter()
            self._redis.xadd(log, {FIELD: value})
            latencies.append(time.perf_counter() - started)
        return latencies

    def write_all(self, log: str, count: int, value: bytes) -> None:
        for first in range(0, count, PIPELINED):
            with self._redis.pipeline(transaction=False) as pipeline:
                for _ in range(min(PIPELINED, count - first)):
                    pipeline.xadd(log, {FIELD: value})
                pipeline.execute()

    def write_paced(self, log: str, rate: int, count: int, value: Callable[[], bytes]) -> None:
        for _ in paced(rate, count):
            self._redis.xadd(log, {FIELD: value()})

    def read(self, log: str, count: int, take: Callable[[bytes], object]) -> None:
        last: bytes | str = "0"
        deadline = time.monotonic() + TIMEOUT_S
        while count:
            for _, entries in self._redis.xread({log: last}, count=READ_AT_ONCE, block=1000) or ():
                for _, fields in entries:
                    take(fields[FIELD.encode()])
                last = entries[-1][0]
                count -= len(entries)
            if time.monotonic() > deadline:
                raise WorkNotDone(f"{count} messages did not come")

    def close(self) -> None:
        self._redis.close()


REDIS = Peer("Redis Streams", "redis", RedisServer, RedisClient, lambda: version_of("redis-server"))
