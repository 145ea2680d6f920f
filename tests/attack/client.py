"""Blocking connections: a client that asks, and volleys of bytes on one connection or on many.

A volley sends and reads at the same time, as long as the broker goes along, and ends when everything was sent and as
many answers came as were expected, when the broker closed the connections, or when the time is up. Answers are counted
and thrown away, but for the beginning of the first one.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

from moldau.base.errors import ErrorCode
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response
from moldau.wire.frames import parse_response_header

from .requests import Values, frame

SEND_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 20
HEAD_BYTES_MAX = 1 << 16
"""Of the first answer is kept what tells an error."""


def connect(address: str, timeout_s: float = 10) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Client:
    """Asks one thing after the other."""

    def __init__(self, address: str, timeout_s: float = 60) -> None:
        self._socket = connect(address, timeout_s)
        self._socket.settimeout(timeout_s)
        self._stream = self._socket.makefile("rb")

    def ask(self, api: str, version: int, values: Values) -> Any:
        """kio's class of the answer; OSError where the broker does not answer."""
        self._socket.sendall(frame(api, version, values))
        return decoded(api, version, self.receive())

    def timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        size = int.from_bytes(self._read(4), "big")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def decoded(api: str, version: int, answer: bytes) -> Any:
    key = APIS_BY_NAME[api].key
    view = memoryview(answer)
    _, position = parse_response_header(view, key, version)
    return decode_response(key, version, view, position)


def first_error(answer: object) -> str | None:
    """The name of the first error in an answer, wherever it is."""
    if isinstance(answer, tuple):
        return next(filter(None, map(first_error, answer)), None)
    if not is_dataclass(answer):
        return None
    for each in fields(answer):
        value = getattr(answer, each.name)
        if each.name == "error_code" and int(value):
            return ErrorCode(int(value)).name
        found = first_error(value)
        if found:
            return found
    return None


@dataclass(slots=True)
class _Lane:
    """One connection of a volley."""

    connection: socket.socket
    unsent: memoryview
    is_closed: bool = False
    answers: int = 0
    answered_bytes: int = 0
    head: bytearray = field(default_factory=bytearray)
    _size: bytearray = field(default_factory=bytearray)
    _left: int = 0

    def take(self, data: memoryview) -> None:
        """Count what was received."""
        self.answered_bytes += len(data)
        if len(self.head) < HEAD_BYTES_MAX:
            self.head += data[: HEAD_BYTES_MAX - len(self.head)]
        position = 0
        while position < len(data):
            if self._left:
                step = min(self._left, len(data) - position)
                self._left -= step
                position += step
            else:
                step = min(4 - len(self._size), len(data) - position)
                self._size += data[position : position + step]
                position += step
                if len(self._size) < 4:
                    return
                self._left = int.from_bytes(self._size, "big")
                self._size.clear()
            if not self._left:
                self.answers += 1


@dataclass(frozen=True, slots=True)
class Volleyed:
    """How a volley went."""

    sent_bytes: int
    answers: int
    answered_bytes: int
    closed: int
    lanes: int
    is_late: bool
    """It was cut off."""
    head: bytes

    def first_answer(self) -> bytes | None:
        """Of the first connection, where it is short."""
        size = int.from_bytes(self.head[:4], "big")
        return self.head[4 : 4 + size] if len(self.head) >= 4 and len(self.head) >= 4 + size else None


def volley(
    connections: Iterable[socket.socket],
    data: bytes,
    *,
    answers: int = 1,
    deadline_s: float,
    reads: bool = True,
) -> Volleyed:
    """Send the same on each connection and wait for so many answers on each; without `reads`, until the deadline."""
    lanes = [_Lane(connection, memoryview(data)) for connection in connections]
    buffer = bytearray(RECEIVE_BYTES)
    is_late = False
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            lane.connection.setblocking(False)
            events = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
            selector.register(lane.connection, events, lane)
        while selector.get_map():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                is_late = reads
                break
            for key, events in selector.select(left_s):
                _advance(selector, key.data, events, buffer, answers, reads)
    return _volleyed(lanes, len(data), is_late)


def _advance(
    selector: selectors.BaseSelector, lane: _Lane, events: int, buffer: bytearray, answers: int, reads: bool
) -> None:
    try:
        if events & selectors.EVENT_READ:
            received = lane.connection.recv_into(buffer)
            if not received:
                raise ConnectionError
            lane.take(memoryview(buffer)[:received])
        if events & selectors.EVENT_WRITE and lane.unsent:
            lane.unsent = lane.unsent[lane.connection.send(lane.unsent[:SEND_BYTES]) :]
    except BlockingIOError:
        return
    except OSError:
        lane.is_closed = True
    if lane.is_closed or (not lane.unsent and lane.answers >= answers):
        selector.unregister(lane.connection)
    elif not lane.unsent:
        selector.modify(lane.connection, selectors.EVENT_READ, lane) if reads else selector.unregister(
            lane.connection
        )


def _volleyed(lanes: Sequence[_Lane], size: int, is_late: bool) -> Volleyed:
    for lane in lanes:
        with contextlib.suppress(OSError):
            lane.connection.setblocking(True)
    return Volleyed(
        sent_bytes=sum(size - len(lane.unsent) for lane in lanes),
        answers=sum(lane.answers for lane in lanes),
        answered_bytes=sum(lane.answered_bytes for lane in lanes),
        closed=sum(lane.is_closed for lane in lanes),
        lanes=len(lanes),
        is_late=is_late,
        head=bytes(lanes[0].head) if lanes else b"",
    )
