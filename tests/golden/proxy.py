"""Capture what unmodified clients and Kafka say to each other, by standing between them.

    PYTHONPATH=tests python -m golden.proxy LISTEN_PORT HOST:PORT NAME

Start the broker with `advertised.listeners` naming the proxy's port, run any clients, then end the proxy with Ctrl-C.
It writes frames/NAME.jsonl, with the first few distinct exchanges of each API and version that the codec knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable

from moldau.wire.apis import APIS, is_known
from moldau.wire.frames import SIZE, parse_request_header

from .store import Exchange, save

EXCHANGES_PER_VERSION_MAX = 2
FRAME_BYTES_MAX = 4000


class Proxy:
    def __init__(self, host: str, port: int, name: str) -> None:
        self._host = host
        self._port = port
        self._name = name
        self._counts: Counter[tuple[int, int]] = Counter()
        self._seen: set[tuple[int, int, bytes]] = set()
        self.kept: list[Exchange] = []

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            kafka, to_kafka = await asyncio.open_connection(self._host, self._port)
            asked: dict[int, bytes] = {}
            async with asyncio.TaskGroup() as both:
                both.create_task(self._relay(client, to_kafka, lambda frame: self._request(frame, asked)))
                both.create_task(self._relay(kafka, to_client, lambda frame: self._response(frame, asked)))
        to_client.close()

    async def _relay(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, note: Callable[[bytes], None]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = await source.readexactly(4)
                frame = await source.readexactly(SIZE.unpack(size)[0])
                note(frame)
                target.write(size + frame)
                await target.drain()
        target.close()

    def _request(self, frame: bytes, asked: dict[int, bytes]) -> None:
        asked[int.from_bytes(frame[4:8], "big")] = frame

    def _response(self, frame: bytes, asked: dict[int, bytes]) -> None:
        request = asked.pop(int.from_bytes(frame[:4], "big"))
        key, version, _, _, position = parse_request_header(memoryview(request))
        case = key, version, request[position:]
        if len(frame) + len(request) > FRAME_BYTES_MAX or not is_known(key, version) or case in self._seen:
            return
        self._seen.add(case)
        self._counts[key, version] += 1
        count = self._counts[key, version]
        if count <= EXCHANGES_PER_VERSION_MAX:
            self.kept.append(Exchange(APIS[key].name, version, f"{self._name} {count}", request, frame))


async def run(listen_port: int, address: str, name: str) -> None:
    host, _, port = address.rpartition(":")
    proxy = Proxy(host, int(port), name)
    ended = asyncio.Event()
    for number in signal.SIGINT, signal.SIGTERM:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await asyncio.start_server(proxy.serve, "127.0.0.1", listen_port)
    await ended.wait()
    save(name, sorted(proxy.kept, key=lambda exchange: exchange.title))


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), *sys.argv[2:]))
