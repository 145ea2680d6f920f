"""Whole transfers over non-blocking streams, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.runtime.ports import Listener, Runtime, Stream

HERE = "127.0.0.1"


class Pair:
    """A listener and one connection to it."""

    def __init__(self, listener: Listener, client: Stream, server: Stream) -> None:
        self.listener = listener
        self.client = client
        self.server = server

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.listener.close()


async def connected(runtime: Runtime) -> Pair:
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    listener = runtime.net.listen(HERE, 0, accepted.set_result)
    client = await runtime.net.connect(HERE, listener.address[1], timeout_s=5)
    return Pair(listener, client, await accepted)


async def readable(stream: Stream) -> None:
    await _event(stream.watch_readable)
    stream.unwatch_readable()


async def writable(stream: Stream) -> None:
    await _event(stream.watch_writable)
    stream.unwatch_writable()


async def _event(watch: Callable[[Callable[[], object]], None]) -> None:
    happened = asyncio.Event()
    watch(happened.set)
    await happened.wait()


async def send_all(stream: Stream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[stream.send(view) :]
        except BlockingIOError:
            await writable(stream)


async def receive(stream: Stream, length: int) -> bytes:
    """Exactly `length` bytes, or fewer at the end of the stream."""
    received = bytearray()
    buffer = bytearray(64 * 1024)
    while len(received) < length:
        await readable(stream)
        count = stream.recv_into(memoryview(buffer)[: length - len(received)])
        if not count:
            break
        received += buffer[:count]
    return bytes(received)


async def receive_to_the_end(stream: Stream) -> bytes:
    return await receive(stream, 1 << 60)
