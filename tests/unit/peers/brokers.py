"""Brokers as tests write them: a coroutine for every connection that says what is received and sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

from contract.streams import HERE, receive, send_all
from moldau.peers.connection import PeerConnection
from moldau.runtime.ports import Address, Listener, Runtime, Stream
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import encode_response_frame
from moldau.wire.frames import parse_request_header, response_frame

METADATA, HEARTBEAT, HEARTBEAT_VERSION = 3, 12, 4
RAW, RAW_VERSION = HEARTBEAT, 0  # not flexible: a header of four bytes
BEAT = SimpleNamespace(group_id="group", generation_id=1, member_id="member", group_instance_id=None)


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    body: bytes


class Served:
    """A connection, as its broker sees it."""

    def __init__(self, runtime: Runtime, stream: Stream, number: int) -> None:
        self.runtime = runtime
        self.stream = stream
        self.number = number
        """Counts connections from 0."""

    async def request(self) -> Request | None:
        size = await receive(self.stream, 4)
        if len(size) < 4:
            return None
        frame = memoryview(await receive(self.stream, int.from_bytes(size, "big")))
        api_key, version, correlation_id, _, position = parse_request_header(frame)
        return Request(api_key, version, correlation_id, bytes(frame[position:]))

    async def send(self, data: bytes) -> None:
        await send_all(self.stream, data)

    async def echo(self, request: Request) -> None:
        """Answer with the request's own body."""
        await self.send(
            response_frame(request.api_key, request.version, request.correlation_id, request.body)
        )

    async def beat(self, request: Request, throttle_ms: int = 0) -> None:
        answer = SimpleNamespace(throttle_time=throttle_ms, error_code=0)
        await self.send(encode_response_frame(HEARTBEAT, request.version, request.correlation_id, answer))

    async def tell_versions(
        self, request: Request, heartbeat: tuple[int, int] = (0, HEARTBEAT_VERSION)
    ) -> None:
        versions = ((HEARTBEAT, *heartbeat), (API_VERSIONS, 0, 3))
        keys = tuple(
            SimpleNamespace(api_key=key, min_version=least, max_version=most) for key, least, most in versions
        )
        answer = SimpleNamespace(error_code=0, api_keys=keys, throttle_time=0)
        await self.send(encode_response_frame(API_VERSIONS, request.version, request.correlation_id, answer))


Serve = Callable[[Served], Coroutine[Any, Any, None]]


class Broker:
    def __init__(self, runtime: Runtime, serve: Serve, port: int = 0) -> None:
        self.connections: list[Served] = []
        self._runtime = runtime
        self._serve = serve
        self._listener: Listener = runtime.net.listen(HERE, port, self._accept)

    @property
    def address(self) -> Address:
        return HERE, self._listener.address[1]

    async def connect(self, **options: Any) -> PeerConnection:
        return await PeerConnection.open(self._runtime, *self.address, "test", **options)

    def _accept(self, stream: Stream) -> None:
        served = Served(self._runtime, stream, len(self.connections))
        self.connections.append(served)
        self._runtime.tasks.spawn(self._serve(served), name="a broker's connection")

    def close(self) -> None:
        self._listener.close()
        for served in self.connections:
            served.stream.close()


async def echoing(served: Served) -> None:
    """Answers every request with its own body, and ApiVersions as it is due."""
    while (request := await served.request()) is not None:
        if request.api_key == API_VERSIONS:
            await served.tell_versions(request)
        else:
            await served.echo(request)
    served.stream.close()


async def beating(served: Served) -> None:
    """Answers ApiVersions and heartbeats."""
    while (request := await served.request()) is not None:
        if request.api_key == API_VERSIONS:
            await served.tell_versions(request)
        else:
            assert request.api_key == HEARTBEAT, APIS[request.api_key]
            await served.beat(request)
    served.stream.close()


async def silent(served: Served) -> None:
    """Reads everything, and answers nothing."""
    while await served.request() is not None:
        pass


async def deaf(served: Served) -> None:
    """Does not even read."""
