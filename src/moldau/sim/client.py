"""The simulation's clients: one connection each to every broker that they need, kept open as real clients do.

`Wire` is a connection of `peers` that knows which life of the broker it talks to; an answer that no broker may give is
a failure of the run. `Client` connects again after a pause when it is lost. In a cluster it starts from any broker and
finds its way by `routes`. What to send again after a loss is up to its user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import BadAnswer
from moldau.peers.errors import Disconnected as Disconnected
from moldau.runtime.ports import Address, Buffer, File, Runtime, Stream, Tasks
from moldau.sim.model import Model
from moldau.sim.random import SimRandom
from moldau.sim.routes import METADATA as METADATA
from moldau.sim.routes import NO_EPOCH, About, Routes

CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_S = 2.0
RETRY_PAUSE_S = (0.01, 0.1)
RECEIVE_BYTES = 16 * 1024
PORT = 9092

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 19, 22
TIMELESS = 0
"""The life of every broker of a cluster: the end of one process takes nothing back of what another one has."""


class Node(Protocol):
    """The broker's host, as far as clients know it."""

    name: str
    node_id: int
    life: int
    """Counts the starts of the broker."""


class Wire(PeerConnection):
    """One connection, of a client that may be slow to read."""

    def __init__(
        self, runtime: Runtime, stream: Stream, client_id: str, life: int, slowness_s: float
    ) -> None:
        if slowness_s:
            stream = SlowStream(stream, runtime.tasks, slowness_s)
        super().__init__(runtime, stream, client_id, timeout_s=REQUEST_TIMEOUT_S, on_closed=_on_closed)
        self.life = life


def _on_closed(_: PeerConnection, error: Exception) -> None:
    if isinstance(error, BadAnswer):
        raise error


class SlowStream:
    """A stream that is read a little at a time, with a rest after each."""

    def __init__(self, stream: Stream, tasks: Tasks, rest_s: float) -> None:
        self.local = stream.local
        self.peer = stream.peer
        self.send: Callable[[Buffer], int] = stream.send
        self.sendmsg: Callable[[Sequence[Buffer]], int] = stream.sendmsg
        self.watch_writable = stream.watch_writable
        self.unwatch_writable = stream.unwatch_writable
        self._stream = stream
        self._tasks = tasks
        self._rest_s = rest_s
        self._is_resting = False
        self._callback: Callable[[], object] | None = None

    def recv_into(self, buffer: Any) -> int:
        if self._is_resting:
            raise BlockingIOError
        count = self._stream.recv_into(memoryview(buffer)[:RECEIVE_BYTES])
        self._is_resting = True
        self._stream.unwatch_readable()
        self._tasks.call_later(self._rest_s, self._read_on)
        return count

    def send_more(self, data: Buffer) -> int:
        return self._stream.send_more(data)

    def sendfile(self, file: File, position: int, length: int) -> int:
        return self._stream.sendfile(file, position, length)

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        if not self._is_resting:
            self._stream.watch_readable(callback)

    def unwatch_readable(self) -> None:
        self._callback = None
        self._stream.unwatch_readable()

    def close(self) -> None:
        self._callback = None
        self._stream.close()

    def _read_on(self) -> None:
        self._is_resting = False
        if self._callback is not None:
            self._stream.watch_readable(self._callback)


class Client:
    """A client's host, with the connections that it keeps."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        nodes: Sequence[Node],
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
        self.is_in_cluster = len(nodes) > 1
        self._nodes = nodes
        self._counts = counts
        self._slowness_s = slowness_s
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._routes = Routes()
        self._wires: dict[Address, Wire] = {}
        self._connectings: dict[Address, asyncio.Lock] = {}
        self._home = self._any_address() if self.is_in_cluster else ("", 0)

    def count(self, what: str, number: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    async def wire(self, about: About | None = None) -> Wire:
        """The connection to the broker that is responsible, or to any, made anew as often as it takes."""
        if not self.is_in_cluster:
            return await self._only_wire()
        while True:
            address = self._home if about is None else self._routes.get(about)
            if address is not None:
                wire = await self._connected(address)
                if wire is not None:
                    return wire
            elif about is not None and await self._find(about):
                continue
            await self.pause()

    async def wire_to(self, broker_id: int) -> Wire | None:
        """The connection to a broker of which a leader has told; None where there is none now."""
        name = next((node.name for node in self._nodes if node.node_id == broker_id), None)
        return None if name is None else await self._connected((name, PORT))

    async def wires(self, places: Sequence[TopicPartition]) -> dict[Wire, list[TopicPartition]]:
        """The connections to the leaders of some partitions, each with its own."""
        if not self.is_in_cluster:
            return {await self._only_wire(): list(places)}
        found: dict[Wire, list[TopicPartition]] = {}
        for place in places:
            found.setdefault(await self.wire(place), []).append(place)
        return found

    def mistrust(self, about: About) -> None:
        """A broker has said that it is not responsible, or not ready: ask again who is, and perhaps another one."""
        if self.is_in_cluster:
            self._routes.mistrust(about)
            if self.random.chance(0.3):
                self._home = self._any_address()

    def leads(self, wire: Wire, place: TopicPartition) -> bool:
        """Whether it is, as far as is known, the connection to the leader of a partition."""
        if not self.is_in_cluster:
            return True
        address = self._routes.get(place)
        return address is not None and self._wires.get(address) is wire

    def leader_epoch(self, place: TopicPartition) -> int:
        return self._routes.leader_epoch(place) if self.is_in_cluster else NO_EPOCH

    async def ask(self, api_key: int, version: int, message: object, about: About | None = None) -> Any:
        """Ask until there is an answer."""
        while True:
            wire = await self.wire(about)
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

    # One broker

    async def _only_wire(self) -> Wire:
        (node,) = self._nodes
        async with self._connecting:
            while self._wire is None or self._wire.is_closed:
                life = node.life
                try:
                    net = self.runtime.net
                    stream = await net.connect(node.name, PORT, timeout_s=CONNECT_TIMEOUT_S)
                except OSError:
                    await self.pause()
                    continue
                if life == node.life:
                    self._wire = Wire(self.runtime, stream, self.name, life, self._slowness_s)
                    self.count("connections")
                else:  # it was made to a broker that is gone already
                    stream.close()
            return self._wire

    # Several brokers

    def _any_address(self) -> Address:
        return (self._nodes[self.random.randrange(len(self._nodes))].name, PORT)

    async def _find(self, about: About) -> bool:
        """Ask one broker who is responsible."""
        wire = await self._connected(self._home)
        if wire is None:
            return False
        try:
            answer = await wire.ask(*self._routes.question(about))
        except Disconnected:
            return False
        if self._routes.take(about, answer):
            return True
        self.mistrust(about)
        return False

    async def _connected(self, address: Address) -> Wire | None:
        """The connection to a broker; None where there is none now, and what led there is forgotten."""
        async with self._connectings.setdefault(address, asyncio.Lock()):
            wire = self._wires.get(address)
            if wire is not None and not wire.is_closed:
                return wire
            if wire is None:
                wire = await self._connect(address)
                if wire is not None:
                    self._wires[address] = wire
                    return wire
            self._wires.pop(address, None)
            self._routes.mistrust_broker(address)
            if address == self._home:
                self._home = self._any_address()
            return None

    async def _connect(self, address: Address) -> Wire | None:
        try:
            stream = await self.runtime.net.connect(*address, timeout_s=CONNECT_TIMEOUT_S)
        except OSError:
            return None
        self.count("connections")
        return Wire(self.runtime, stream, self.name, TIMELESS, self._slowness_s)
