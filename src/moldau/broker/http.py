"""Metrics and health over HTTP, on a port of their own: `GET /metrics` (Prometheus), `GET /health` (JSON).

A few lines of HTTP/1.1 on the same ports as everything else: one small request per connection, answered and closed.

Nobody keeps others from asking: a head that is too large or takes too long ends the connection, as does an answer that
is not read in time. Where all places are taken, the exchange that has waited the longest for its client makes room,
half-sent heads first. Unread answers are bounded in all; and an answer that took long to make is given again for a
while, so that who asks all the time gets the same as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from moldau.base.limits import (
    HTTP_ANSWER_BYTES_HELD_MAX,
    HTTP_ANSWER_S_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_S_MAX,
    HTTP_WORK_SHARE,
)
from moldau.runtime.ports import Listener, Runtime, Stream


class Answer(NamedTuple):
    status: str
    kind: str
    body: bytes


class HttpServer:
    def __init__(
        self, runtime: Runtime, metrics: Callable[[], str], health: Callable[[], tuple[bool, dict[str, Any]]]
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._health = health
        self._listener: Listener | None = None
        self._open: dict[_Exchange, None] = {}  # in the order of arrival
        self._made: dict[str, tuple[Answer, float]] = {}
        """The last answer for each path that takes work, and until when it is given again."""

    def listen(self, host: str, port: int) -> Listener:
        self._listener = self._runtime.net.listen(host, port, self._accept)
        return self._listener

    def _accept(self, stream: Stream) -> None:
        if len(self._open) >= HTTP_CONNECTIONS_MAX:
            half_sent = (exchange for exchange in self._open if not exchange.is_answered)
            next(half_sent, next(iter(self._open))).close()
        self._open[_Exchange(self, stream)] = None

    def answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return Answer("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path == "/metrics":
            return self._remembered(path, self._answer_metrics)
        if path in ("/health", "/healthz"):
            return self._remembered(path, self._answer_health)
        if path == "/":
            return Answer("200 OK", "text/plain; charset=utf-8", b"moldau: /metrics /health\n")
        return Answer("404 Not Found", "text/plain", b"try /metrics or /health\n")

    def _answer_metrics(self) -> Answer:
        return Answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", self._metrics().encode())

    def _answer_health(self) -> Answer:
        is_well, details = self._health()
        status = "200 OK" if is_well else "503 Service Unavailable"
        return Answer(status, "application/json", json.dumps(details).encode() + b"\n")

    def _remembered(self, path: str, make: Callable[[], Answer]) -> Answer:
        now_s = self._runtime.clock.monotonic()
        if path in self._made and now_s < self._made[path][1]:
            return self._made[path][0]
        answer = make()
        made_s = self._runtime.clock.monotonic()
        self._made[path] = answer, made_s + (made_s - now_s) * (HTTP_WORK_SHARE - 1)
        return answer

    def on_answered(self) -> None:
        """An answer waits for its client. Those of slow ones are not kept without end."""
        held = [exchange for exchange in self._open if exchange.unsent_bytes]
        count = sum(exchange.unsent_bytes for exchange in held)
        for exchange in held[:-1]:
            if count <= HTTP_ANSWER_BYTES_HELD_MAX:
                return
            count -= exchange.unsent_bytes
            exchange.close()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        return self._runtime.tasks.call_later(delay_s, callback)

    def on_closed(self, exchange: _Exchange) -> None:
        self._open.pop(exchange, None)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for exchange in list(self._open):
            exchange.close()


class _Exchange:
    """One request and its answer."""

    def __init__(self, server: HttpServer, stream: Stream) -> None:
        self.is_answered = False
        self._server = server
        self._stream = stream
        self._head = b""
        self._answer = memoryview(b"")
        self._deadline = server.call_later(HTTP_HEAD_S_MAX, self.close)
        stream.watch_readable(self._on_readable)

    @property
    def unsent_bytes(self) -> int:
        return len(self._answer)

    def _on_readable(self) -> None:
        buffer = bytearray(HTTP_HEAD_BYTES_MAX)
        try:
            received = self._stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        self._head += buffer[:received]
        if not received or len(self._head) > HTTP_HEAD_BYTES_MAX:
            self.close()
        elif b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self._stream.unwatch_readable()
            self._respond()

    def _respond(self) -> None:
        words = self._head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3:
            method, (status, kind, body) = "GET", Answer("400 Bad Request", "text/plain", b"not HTTP\n")
        else:
            method = words[0]
            status, kind, body = self._server.answer(method, words[1].split("?", 1)[0])
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answer = memoryview(head.encode() + (b"" if method == "HEAD" else body))
        self.is_answered = True
        self._deadline.cancel()
        self._deadline = self._server.call_later(HTTP_ANSWER_S_MAX, self.close)
        self._stream.watch_writable(self._on_writable)
        self._server.on_answered()

    def _on_writable(self) -> None:
        try:
            self._answer = self._answer[self._stream.send(self._answer) :]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._answer:
            self.close()

    def close(self) -> None:
        self._deadline.cancel()
        self._stream.close()
        self._server.on_closed(self)
