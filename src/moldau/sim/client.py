"""A small client of Kafka's protocol over the Net port, as the simulation's producers and readers need it.

`Wire` is one connection: pipelined requests, answers matched in order, closed at the first time-out or nonsense.
`Client` keeps one open, as real clients do: it connects again after a pause when it is lost, and says which life of
the broker it talks to. What to send again after a loss is up to its user.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.runtime.ports import Runtime, Stream
from moldau.sim.model import Model
from moldau.sim.random import SimRandom
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import parse_response_header

CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_S = 2.0
RETRY_PAUSE_S = (0.01, 0.1)
RECEIVE_BYTES = 16 * 1024
PORT = 9092

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 19, 22


class Disconnected(Exception):
    """The connection is gone, and with it the answer; what became of the request is not known."""


class BadAnswer(Exception):
    """No broker may answer like this."""


class Node(Protocol):
    """The broker's host, as far as clients know it."""

    name: str
    life: int
    """Counts the starts of the broker."""


class Awaited(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    answer: asyncio.Future[Any]


class Wire:
    """One connection."""

    def __init__(
        self, runtime: Runtime, stream: Stream, client_id: str, life: int, slowness_s: float
    ) -> None:
        self.life = life
        self.is_closed = False
        self.is_deaf = False
        """Whether answers that nobody waits for are let pass: who sends nonsense may get anything."""
        self._tasks = runtime.tasks
        self._stream = stream
        self._client_id = client_id
        self._slowness_s = slowness_s
        self._awaited: deque[Awaited] = deque()
        self._next_id = 1
        self._out = bytearray()
        self._in = bytearray()
        stream.watch_readable(self._on_readable)

    def send(self, api_key: int, version: int, message: object) -> asyncio.Future[Any]:
        """Send a request; its answer, or Disconnected, comes in the future."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        if self.is_closed:
            answer.set_exception(Disconnected())
            return answer
        self._awaited.append(Awaited(api_key, version, self._next_id, answer))
        self.send_only(api_key, version, message)
        return answer

    def send_only(self, api_key: int, version: int, message: object) -> None:
        """Send a request that gets no answer (acks=0)."""
        self.send_bytes(encode_request_frame(api_key, version, self._next_id, self._client_id, message))
        self._next_id += 1

    def send_bytes(self, data: bytes) -> None:
        if not self.is_closed:
            self._out += data
            self._on_writable()

    async def ask(self, api_key: int, version: int, message: object) -> Any:
        return await self.answer(self.send(api_key, version, message))

    async def answer(self, future: asyncio.Future[Any], timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Wait for an answer. Time-out: the connection is given up, since answers come in order."""
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            self.close()
            raise Disconnected from None

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._stream.close()
            for awaited in self._awaited:
                if not awaited.answer.done():
                    awaited.answer.set_exception(Disconnected())
            self._awaited.clear()

    # The stream

    def _on_writable(self) -> None:
        try:
            while self._out:
                del self._out[: self._stream.send(self._out)]
        except BlockingIOError:
            self._stream.watch_writable(self._on_writable)
        except OSError:
            self.close()
        else:
            self._stream.unwatch_writable()

    def _on_readable(self) -> None:
        buffer = bytearray(RECEIVE_BYTES)
        try:
            count = self._stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self._in += buffer[:count]
        while not self.is_closed and len(self._in) >= 4:
            size = int.from_bytes(self._in[:4], "big", signed=True)
            if len(self._in) < 4 + size:
                break
            frame = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            self._on_frame(frame)
        if self._slowness_s and not self.is_closed:
            self._stream.unwatch_readable()
            self._tasks.call_later(self._slowness_s, self._read_on)

    def _read_on(self) -> None:
        if not self.is_closed:
            self._stream.watch_readable(self._on_readable)

    def _on_frame(self, frame: bytes) -> None:
        if not self._awaited:
            if self.is_deaf:
                return
            raise BadAnswer("an answer that nobody waits for")
        api_key, version, wanted_id, answer = self._awaited.popleft()
        correlation_id, position = parse_response_header(memoryview(frame), api_key, version)
        if correlation_id != wanted_id:
            raise BadAnswer(f"an answer to request {correlation_id} where {wanted_id} is due")
        if not answer.done():
            answer.set_result(decode_response(api_key, version, memoryview(frame), position))


class Client:
    """A client's host, with the one connection that it keeps."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        node: Node,
        model: Model,
        random: SimRandom,
        topic_ids: dict[str, UUID],
        counts: dict[str, int],
        slowness_s: float = 0.0,
        incarnation: int = 1,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        """Counts the lives of the client's process."""
        self.runtime = runtime
        self.model = model
        self.random = random
        self.topic_ids = topic_ids
        self.is_stopping = False
        self._node = node
        self._counts = counts
        self._slowness_s = slowness_s
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()

    def count(self, what: str, number: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    async def wire(self) -> Wire:
        """The connection, made anew as often as it takes."""
        async with self._connecting:
            while self._wire is None or self._wire.is_closed:
                life = self._node.life
                try:
                    net = self.runtime.net
                    stream = await net.connect(self._node.name, PORT, timeout_s=CONNECT_TIMEOUT_S)
                except OSError:
                    await self.pause()
                    continue
                if life == self._node.life:
                    self._wire = Wire(self.runtime, stream, self.name, life, self._slowness_s)
                    self.count("connections")
                else:  # it was made to a broker that is gone already
                    stream.close()
            return self._wire

    async def ask(self, api_key: int, version: int, message: object) -> Any:
        """Ask until there is an answer."""
        while True:
            wire = await self.wire()
            try:
                return await wire.ask(api_key, version, message)
            except Disconnected:
                await self.pause()

    async def pause(self) -> None:
        await self.runtime.tasks.sleep(self.random.between(*RETRY_PAUSE_S))

    def topic(self, name: str, **fields: object) -> SimpleNamespace:
        """A topic in a request, named as each version wants it."""
        return SimpleNamespace(name=name, topic=name, topic_id=self.topic_ids.get(name), **fields)

    def partition_of(self, topic: Any, index: int) -> TopicPartition:
        """A topic in an answer, by its name or id, with a partition's index."""
        name = getattr(topic, "topic", None) or getattr(topic, "name", None)
        if name is None:
            name = next(name for name, topic_id in self.topic_ids.items() if topic_id == topic.topic_id)
        return TopicPartition(name, index)


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """A lost answer that nobody waits for any more is no failure."""
    if not answer.cancelled():
        answer.exception()
