"""Metrics and health over HTTP, on a port of their own: `GET /metrics` (Prometheus), `GET /health` (JSON).

A few lines of HTTP/1.1 on the same ports as everything else: one small request per connection, answered and closed.
A request head of more than 8 KB, or one that takes longer than ten seconds, ends the connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moldau.runtime.ports import Listener, Runtime, Stream

HEAD_BYTES_MAX = 8192
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 64


class HttpServer:
    def __init__(
        self, runtime: Runtime, metrics: Callable[[], str], health: Callable[[], tuple[bool, dict[str, Any]]]
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._health = health
        self._listener: Listener | None = None
        self._open: dict[_Exchange, None] = {}

    def listen(self, host: str, port: int) -> Listener:
        self._listener = self._runtime.net.listen(host, port, self._accept)
        return self._listener

    def _accept(self, stream: Stream) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            stream.close()
            return
        self._open[_Exchange(self, stream)] = None

    def answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        """Status line, content type and body for a request."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"only GET\n"
        if path == "/metrics":
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", self._metrics().encode()
        if path in ("/health", "/healthz"):
            is_well, details = self._health()
            status = "200 OK" if is_well else "503 Service Unavailable"
            return status, "application/json", json.dumps(details).encode() + b"\n"
        if path == "/":
            return "200 OK", "text/plain; charset=utf-8", b"moldau: /metrics /health\n"
        return "404 Not Found", "text/plain", b"try /metrics or /health\n"

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
        self._server = server
        self._stream = stream
        self._head = b""
        self._answer = memoryview(b"")
        self._deadline = server.call_later(REQUEST_S_MAX, self.close)
        stream.watch_readable(self._on_readable)

    def _on_readable(self) -> None:
        buffer = bytearray(HEAD_BYTES_MAX)
        try:
            received = self._stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        self._head += buffer[:received]
        if not received or len(self._head) > HEAD_BYTES_MAX:
            self.close()
        elif b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self._stream.unwatch_readable()
            self._respond()

    def _respond(self) -> None:
        words = self._head.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3:
            method, status, kind, body = "GET", "400 Bad Request", "text/plain", b"not HTTP\n"
        else:
            method = words[0]
            status, kind, body = self._server.answer(method, words[1].split("?", 1)[0])
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answer = memoryview(head.encode() + (b"" if method == "HEAD" else body))
        self._stream.watch_writable(self._on_writable)

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
