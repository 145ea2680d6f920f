"""One connection to each broker, asked the same thing at the same time.

What a broker does with a request is its `Outcome`: an answer, a closed connection, or silence with the connection
left open. After a close the next request goes out on a new connection. Requests are dictionaries of the fields that
matter; a `Both` in them stands for a value that each broker has its own of, such as a topic's id.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from select import select
from typing import Any
from uuid import UUID

from golden.recorder import build
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response, encode_request
from moldau.wire.frames import SIZE, parse_response_header, request_header
from moldau.wire.schema import message_class

from .described import decode_described

CLIENT_ID = "same-answers"
PATIENCE_S = 10.0
SETTLE_TIMEOUT_S = 15.0
SHORT_PATIENCE_S = 0.7  # where no answer may be the answer
CLOSED = "the connection is closed"
NO_ANSWER = "no answer, and the connection stays open"


@dataclass(frozen=True, slots=True)
class Both:
    """What the two brokers said, or a value that differs between them by its nature."""

    kafka: Any
    moldau: Any

    def map(self, function: Callable[[Any], Any]) -> Both:
        return Both(function(self.kafka), function(self.moldau))

    def of(self, peer: Peer) -> Any:
        return self.kafka if peer.is_kafka else self.moldau


class Peer:
    """One of the two brokers, with what it calls the things that both have."""

    def __init__(self, name: str, address: str, came_from: str = "") -> None:
        """`came_from`: an address of this machine that its connections have at this end."""
        self.name = name
        self._source = (came_from, 0) if came_from else None
        self.is_kafka = name == "kafka"
        host, _, port = address.rpartition(":")
        self.host, self.port = host, int(port)
        self.topic_names: dict[UUID, str] = {}
        self.producer_names: dict[int, str] = {}  # producer id -> the transactional id that it was given to
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def encode(self, api: str, version: int, values: dict[str, Any]) -> bytes:
        key = APIS_BY_NAME[api].key
        message = build(message_class("request", key, version), self._own(values))
        return self.framed(api, version, encode_request(key, version, message))

    def framed(self, api: str, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        head = request_header(APIS_BY_NAME[api].key, version, self._correlation_id, CLIENT_ID)
        return SIZE.pack(len(head) + len(body)) + head + body

    def _own(self, value: Any) -> Any:
        if isinstance(value, Both):
            return value.of(self)
        if isinstance(value, dict):
            return {key: self._own(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._own(item) for item in value]
        return value

    def decode(self, api: str, version: int, frame: bytes) -> Any:
        key = APIS_BY_NAME[api].key
        view = memoryview(frame)
        correlation_id, position = parse_response_header(view, key, version)
        assert correlation_id == self._correlation_id, f"{self.name} answers {correlation_id}"
        if api == "DescribeTransactions":
            return decode_described(frame[position:])
        return decode_response(key, version, view, position)

    # ---- the connection ---------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(
                (self.host, self.port), timeout=PATIENCE_S, source_address=self._source
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(data)
        except ConnectionError:
            pass  # whether it was closed before the last byte was sent is chance; the receive finds it too

    def receive(self, patience_s: float = PATIENCE_S) -> bytes | str:
        """A frame without its size, CLOSED, or NO_ANSWER; the latter two end the connection."""
        assert self._socket is not None
        self._socket.settimeout(patience_s)
        try:
            size = self._read(SIZE.size)
            return self._read(SIZE.unpack(size)[0])
        except (ConnectionError, EOFError):
            outcome = CLOSED
        except TimeoutError:
            outcome = NO_ANSWER
        self.close()
        return outcome

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    @contextmanager
    def fresh(self) -> Iterator[Peer]:
        """The same broker on a connection of its own."""
        fresh = Peer(self.name, f"{self.host}:{self.port}")
        fresh.topic_names, fresh.producer_names = self.topic_names, self.producer_names
        try:
            yield fresh
        finally:
            fresh.close()

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Pair:
    """Apache Kafka and Moldau. Each is sent its request before either answer is awaited."""

    def __init__(self, kafka: Peer, moldau: Peer) -> None:
        self.kafka = kafka
        self.moldau = moldau

    def both(self, function: Callable[[Peer], Any]) -> Both:
        return Both(function(self.kafka), function(self.moldau))

    def ask(self, api: str, version: int, values: dict[str, Any], patience_s: float = PATIENCE_S) -> Both:
        """The decoded answers, or CLOSED, or NO_ANSWER."""
        self.both(lambda peer: peer.send(peer.encode(api, version, values)))
        return self.both(lambda peer: self.answer_of(peer, api, version, patience_s))

    def ask_one(self, peer: Peer, api: str, version: int, values: dict[str, Any]) -> Any:
        peer.send(peer.encode(api, version, values))
        return self.answer_of(peer, api, version)

    def answer_of(self, peer: Peer, api: str, version: int, patience_s: float = PATIENCE_S) -> Any:
        frame = peer.receive(patience_s)
        return frame if isinstance(frame, str) else peer.decode(api, version, frame)

    def ask_timed(self, api: str, version: int, values: dict[str, Any]) -> tuple[Both, Both]:
        """The answers, and after how many seconds each came."""
        start = time.monotonic()
        self.both(lambda peer: peer.send(peer.encode(api, version, values)))
        seconds: dict[str, float] = {}
        while len(seconds) < 2:
            waiting = [peer for peer in (self.kafka, self.moldau) if peer.name not in seconds]
            for peer in select(waiting, (), (), PATIENCE_S)[0] or waiting:
                seconds[peer.name] = time.monotonic() - start
        answers = self.both(lambda peer: self.answer_of(peer, api, version))
        return answers, Both(seconds["kafka"], seconds["moldau"])

    def send_without_answer(self, api: str, version: int, values: dict[str, Any]) -> Both:
        """A request that gets no answer: whether the connection is still open after it."""
        probe_version = 0

        def outcome(peer: Peer) -> str:
            peer.send(peer.encode(api, version, values))
            peer.send(peer.framed("ApiVersions", probe_version, b""))
            frame = peer.receive()
            if isinstance(frame, str):
                return frame
            peer.decode("ApiVersions", probe_version, frame)
            return NO_ANSWER

        return self.both(outcome)

    def send_body(self, api: str, version: int, body: bytes, answered_in: int | None = None) -> Both:
        """A request with this body, on connections of their own: the decoded answers, CLOSED, or NO_ANSWER."""

        def outcome(peer: Peer) -> Any:
            with peer.fresh() as fresh:
                fresh.send(fresh.framed(api, version, body))
                answer_version = version if answered_in is None else answered_in
                return self.answer_of(fresh, api, answer_version, SHORT_PATIENCE_S)

        return self.both(outcome)

    def send_raw(self, frame: bytes) -> Both:
        """Bytes as they are, on connections of their own: the answer's bytes, CLOSED, or NO_ANSWER."""

        def outcome(peer: Peer) -> bytes | str:
            with peer.fresh() as fresh:
                fresh.send(frame)
                return fresh.receive(SHORT_PATIENCE_S)

        return self.both(outcome)

    def wait_for(self, what: str, is_so: Callable[[Peer], bool]) -> None:
        """Kafka answers an administrator before its broker has heard of the change."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        for peer in (self.kafka, self.moldau):
            while not is_so(peer):
                assert time.monotonic() < deadline, f"{what} is not there on {peer.name}"
                time.sleep(0.01)

    def warm_up(self) -> None:
        """Wait for what Kafka makes at its first use: a block of producer ids, the topic of the group coordinator."""

        def gives_ids(peer: Peer) -> bool:
            return not self.ask_one(peer, "InitProducerId", 4, {"transactional_id": None}).error_code

        def has_coordinator(peer: Peer) -> bool:
            if self.ask_one(peer, "FindCoordinator", 3, {"key": "group", "key_type": 0}).error_code:
                return False
            (group,) = self.ask_one(peer, "DescribeGroups", 5, {"groups": ["group"]}).groups
            return not group.error_code  # Kafka names the coordinator before it has loaded

        def has_transactions(peer: Peer) -> bool:
            return not self.ask_one(peer, "FindCoordinator", 3, {"key": "id", "key_type": 1}).error_code

        self.wait_for("a block of producer ids", gives_ids)
        self.wait_for("the transaction coordinator", has_transactions)
        self.wait_for("the group coordinator", has_coordinator)

    def close(self) -> None:
        self.kafka.close()
        self.moldau.close()
