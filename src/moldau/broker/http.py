"""Metrics and health over HTTP, on a port of their own: `GET /metrics` (Prometheus), `GET /health` (JSON).

A few lines of HTTP/1.1 on the same ports as everything else: one small request per connection, answered and closed.
Over TLS where it has a certificate.

Nobody keeps others from asking: a head that is too large or takes too long ends the connection, as does an answer that
is not read in time. Where all places are taken, the exchange that has waited the longest for its client makes room,
half-sent heads first. Unread answers are bounded in all; and an answer that took long to make is given again for a
while, so that who asks all the time gets the same as before. /metrics is made in slices, with others served between
(`runtime.line`): once for all who ask meanwhile.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from moldau.base.limits import (
    HTTP_ANSWER_BYTES_HELD_MAX,
    HTTP_ANSWER_S_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_S_MAX,
    HTTP_WORK_SHARE,
)
from moldau.broker.handshakes import Handshakes
from moldau.runtime.line import Line, Pace, Slices
from moldau.runtime.ports import Listener, Runtime, Stream
from moldau.runtime.tls import TlsContext, TlsStream

log = logging.getLogger(__name__)

METRICS = "/metrics"


class Answer(NamedTuple):
    status: str
    kind: str
    body: bytes


class HttpServer:
    def __init__(
        self,
        runtime: Runtime,
        line: Line,
        metrics: Callable[[], Awaitable[Slices[str]]],
        health: Callable[[], tuple[bool, dict[str, Any]]],
    ) -> None:
        self._runtime = runtime
        self._line = line
        self._metrics = metrics
        self._health = health
        self._listener: Listener | None = None
        self._open: dict[_Exchange, None] = {}  # in the order of arrival
        self._made: dict[str, tuple[Answer, float]] = {}
        """The last answer for each path that takes work, and until when it is given again."""
        self._asking: dict[_Exchange, None] = {}
        """Who waits for the metrics that are being made, which goes on where nobody does any more."""
        self._is_making = False
        self._handshakes = Handshakes(runtime.clock, runtime.tasks, HTTP_CONNECTIONS_MAX, patience_s=0.0)

    def listen(self, host: str, port: int, context: Callable[[], TlsContext] | None = None) -> Listener:
        net = self._runtime.net
        if context is None:
            self._listener = net.listen(host, port, self._accept)
        else:
            self._listener = net.listen_tls(host, port, self._secure, context)
        return self._listener

    def _secure(self, stream: TlsStream) -> None:
        if len(self._handshakes) >= 2 * HTTP_CONNECTIONS_MAX:
            stream.close()
        else:
            self._handshakes.begin(
                stream, lambda error: self._accept(stream) if error is None else stream.close()
            )

    def _accept(self, stream: Stream) -> None:
        if len(self._open) >= HTTP_CONNECTIONS_MAX:
            half_sent = (exchange for exchange in self._open if not exchange.has_asked)
            next(half_sent, next(iter(self._open))).close()
        self._open[_Exchange(self, stream)] = None

    def answer(self, method: str, path: str, exchange: _Exchange) -> Answer | None:
        """None where the exchange is given its answer later."""
        if method not in ("GET", "HEAD"):
            return Answer("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path == METRICS:
            recent = self._recent(path)
            if recent is None:
                self._begin_metrics(exchange)
            return recent
        if path in ("/health", "/healthz"):
            return self._recent(path) or self._answer_health(path)
        if path == "/":
            return Answer("200 OK", "text/plain; charset=utf-8", b"moldau: /metrics /health\n")
        return Answer("404 Not Found", "text/plain", b"try /metrics or /health\n")

    def _begin_metrics(self, exchange: _Exchange) -> None:
        self._asking[exchange] = None
        if not self._is_making:
            self._is_making = True
            self._runtime.tasks.spawn(self._answer_metrics(), name="metrics")

    async def _answer_metrics(self) -> None:
        try:
            text, spent_s = await self._made_in_slices(await self._metrics())
            answer = Answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", text.encode())
            self._remember(METRICS, answer, spent_s)
        except Exception:
            log.exception("the metrics could not be made")
            answer = Answer("500 Internal Server Error", "text/plain", b"see the broker's log\n")
        self._is_making = False
        asking, self._asking = self._asking, {}
        for exchange in asking:
            exchange.give(answer)

    async def _made_in_slices(self, work: Slices[str]) -> tuple[str, float]:
        """The text, and the time of the loop that it took."""
        clock, spent_s = self._runtime.clock, 0.0
        pace = Pace(clock, self._line)
        while True:
            start_s = clock.monotonic()
            try:
                next(work)
            except StopIteration as end:
                return end.value, spent_s + clock.monotonic() - start_s
            spent_s += clock.monotonic() - start_s
            await pace.breathe()

    def _answer_health(self, path: str) -> Answer:
        start_s = self._runtime.clock.monotonic()
        is_well, details = self._health()
        status = "200 OK" if is_well else "503 Service Unavailable"
        answer = Answer(status, "application/json", json.dumps(details).encode() + b"\n")
        self._remember(path, answer, self._runtime.clock.monotonic() - start_s)
        return answer

    def _recent(self, path: str) -> Answer | None:
        answer, until_s = self._made.get(path, (None, 0.0))
        return answer if self._runtime.clock.monotonic() < until_s else None

    def _remember(self, path: str, answer: Answer, spent_s: float) -> None:
        self._made[path] = answer, self._runtime.clock.monotonic() + spent_s * (HTTP_WORK_SHARE - 1)

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
        self._asking.pop(exchange, None)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._handshakes.close()
        for exchange in list(self._open):
            exchange.close()


class _Exchange:
    """One request and its answer."""

    def __init__(self, server: HttpServer, stream: Stream) -> None:
        self.has_asked = False
        self._has_only_head = False
        self._is_closed = False
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
        self.has_asked = True
        self._set_deadline()
        words = self._head.split(b"\n", 1)[0].decode("latin-1").split()
        self._head = b""
        if len(words) != 3:
            answer: Answer | None = Answer("400 Bad Request", "text/plain", b"not HTTP\n")
        else:
            self._has_only_head = words[0] == "HEAD"
            answer = self._server.answer(words[0], words[1].split("?", 1)[0], self)
        if answer is not None:
            self.give(answer)

    def give(self, answer: Answer) -> None:
        if self._is_closed:
            return
        status, kind, body = answer
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answer = memoryview(head.encode() + (b"" if self._has_only_head else body))
        self._set_deadline()
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

    def _set_deadline(self) -> None:
        """For the answer to be there, and then for the client to take it."""
        self._deadline.cancel()
        self._deadline = self._server.call_later(HTTP_ANSWER_S_MAX, self.close)

    def close(self) -> None:
        self._is_closed = True
        self._deadline.cancel()
        self._stream.close()
        self._server.on_closed(self)
