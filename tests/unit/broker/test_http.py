"""/health and /metrics answer whatever others do on that port: half-sent heads, slow readers, crowds."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from moldau.base.limits import (
    HTTP_ANSWER_BYTES_HELD_MAX,
    HTTP_ANSWER_S_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_S_MAX,
    HTTP_WORK_SHARE,
)
from moldau.broker.http import HttpServer
from moldau.runtime.line import Line, Slices

HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\n\r\n"


class FakeStream:
    """A client: what it sends, and how much it reads."""

    def __init__(self, reads: int) -> None:
        self.received = b""
        self.is_closed = False
        self._reads = reads
        self._sent = b""
        self._on_readable: Callable[[], object] | None = None
        self.on_writable: Callable[[], object] | None = None

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self._on_readable = callback

    def unwatch_readable(self) -> None:
        self._on_readable = None

    def watch_writable(self, callback: Callable[[], object]) -> None:
        self.on_writable = callback

    def recv_into(self, buffer: bytearray) -> int:
        count = min(len(buffer), len(self._sent))
        buffer[:count], self._sent = self._sent[:count], self._sent[count:]
        return count

    def send(self, data: memoryview) -> int:
        if not self._reads:
            raise BlockingIOError
        count = min(self._reads, len(data))
        self._reads -= count
        self.received += bytes(data[:count])
        return count

    def client_sends(self, data: bytes) -> None:
        self._sent += data
        while self._sent and self._on_readable is not None and not self.is_closed:
            self._on_readable()
        while self.on_writable is not None and self._reads and not self.is_closed:
            self.on_writable()

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """The server without sockets; time passes when it is told to."""

    def __init__(self, metrics: str = "up 1\n", makes_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.made = 0
        self._metrics = metrics
        self._makes_s = makes_s
        self.is_waiting = self.fails = False
        self.turns: list[Callable[[], object]] = []
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self._timers: dict[object, tuple[float, Callable[[], object]]] = {}
        runtime: Any = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: self.now_s),
            tasks=SimpleNamespace(
                call_later=self._call_later, call_soon=self.turns.append, spawn=self._spawn
            ),
            net=SimpleNamespace(listen=self._listen),
        )
        line = Line(runtime.clock, runtime.tasks)
        HttpServer(runtime, line, self._metrics_of, lambda: (True, {"status": "ok"})).listen("", 0)

    def _listen(self, host: str, port: int, accept: Callable[[Any], None]) -> None:
        self._accept = accept

    async def _metrics_of(self) -> Slices[str]:
        while self.is_waiting:
            await asyncio.sleep(0)
        return self._make_metrics()

    def _make_metrics(self) -> Slices[str]:
        yield
        if self.fails:
            raise ValueError("it fails")
        self.made += 1
        self.now_s += self._makes_s
        return self._metrics

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self.tasks.append(work)
        self.go_on()

    def go_on(self) -> None:
        """A step of the metrics that are being made."""
        for task in list(self.tasks):
            try:
                task.send(None)
            except StopIteration:
                self.tasks.remove(task)

    def _call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        key = object()
        self._timers[key] = (self.now_s + delay_s, callback)
        return SimpleNamespace(cancel=lambda: self._timers.pop(key, None))

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for key, (due_s, callback) in list(self._timers.items()):
            if due_s <= self.now_s and self._timers.pop(key, None):
                callback()

    def connect(self, reads: int = 1 << 30) -> FakeStream:
        stream = FakeStream(reads)
        self._accept(stream)
        return stream


def ask(stage: Stage, request: bytes = HEALTH) -> bytes:
    stream = stage.connect()
    stream.client_sends(request)
    assert stream.is_closed
    return stream.received


def ask_and_forget(stage: Stage) -> FakeStream:
    stream = stage.connect()
    stream.client_sends(METRICS)
    return stream


def test_a_request_is_answered_and_its_connection_closed() -> None:
    stage = Stage()
    assert ask(stage).startswith(b"HTTP/1.1 200 OK") and b'"ok"' in ask(stage)
    assert ask(stage, METRICS).endswith(b"\r\n\r\nup 1\n")
    assert ask(stage, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(
        b"Content-Length: 5\r\nConnection: close\r\n\r\n"
    )
    assert ask(stage, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405")
    assert ask(stage, b"GET /other HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")
    assert ask(stage, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_half_sent_heads_do_not_keep_others_from_asking() -> None:
    stage = Stage()
    for _ in range(10):
        for _ in range(100):
            stage.connect().client_sends(b"GET /health HTTP/1.1\r\nX:")
        assert ask(stage).startswith(b"HTTP/1.1 200 OK")


def test_the_oldest_half_sent_head_makes_room_and_answers_under_way_do_not() -> None:
    stage = Stage()
    reading = stage.connect(reads=10)
    reading.client_sends(METRICS)
    waiting = [stage.connect() for _ in range(HTTP_CONNECTIONS_MAX - 1)]
    stage.connect()
    assert [stream.is_closed for stream in (reading, *waiting[:2])] == [False, True, False]


def test_slow_readers_make_room_where_there_is_nobody_else() -> None:
    stage = Stage()
    slow = [stage.connect(reads=1) for _ in range(HTTP_CONNECTIONS_MAX)]
    for stream in slow:
        stream.client_sends(METRICS)
    assert ask(stage).startswith(b"HTTP/1.1 200 OK")
    assert [stream.is_closed for stream in slow] == [True] + [False] * (HTTP_CONNECTIONS_MAX - 1)


def test_a_head_that_takes_too_long_ends_the_connection() -> None:
    stage = Stage()
    stream = stage.connect()
    for _ in range(10):
        stream.client_sends(b"G")
        assert not stream.is_closed
        stage.pass_time(HTTP_HEAD_S_MAX / 10)
    assert stream.is_closed and not stage._timers


def test_a_head_that_is_too_large_ends_the_connection() -> None:
    stream = Stage().connect()
    for _ in range(HTTP_HEAD_BYTES_MAX):
        stream.client_sends(b"x")
    assert not stream.is_closed
    stream.client_sends(b"x")
    assert stream.is_closed and not stream.received


def test_an_answer_that_is_not_read_ends_the_connection() -> None:
    stage = Stage()
    stream = stage.connect(reads=10)
    stage.pass_time(HTTP_HEAD_S_MAX - 1)
    stream.client_sends(METRICS)
    stage.pass_time(HTTP_ANSWER_S_MAX - 1)
    assert not stream.is_closed
    stage.pass_time(1)
    assert stream.is_closed and not stage._timers


def test_unread_answers_are_bounded_over_all_clients() -> None:
    stage = Stage(metrics="x" * (HTTP_ANSWER_BYTES_HELD_MAX // 3))
    slow = [stage.connect(reads=1) for _ in range(10)]
    for stream in slow:
        stream.client_sends(METRICS)
    assert [stream.is_closed for stream in slow] == [True] * 8 + [False] * 2
    assert ask(stage).startswith(b"HTTP/1.1 200 OK")


def test_one_answer_larger_than_the_bound_is_given() -> None:
    stage = Stage(metrics="x" * (HTTP_ANSWER_BYTES_HELD_MAX + 1))
    assert len(ask(stage, METRICS)) > HTTP_ANSWER_BYTES_HELD_MAX


def test_who_asks_all_the_time_costs_a_tenth_of_it() -> None:
    stage = Stage(makes_s=0.02)
    began_s = stage.now_s
    for _ in range(100):
        ask(stage, METRICS)
        stage.pass_time(0.01)
    assert 1 < stage.made <= 1 + (stage.now_s - began_s) / (0.02 * HTTP_WORK_SHARE)


def test_what_takes_no_time_is_always_new() -> None:
    stage = Stage()
    for _ in range(100):
        ask(stage, METRICS)
    assert stage.made == 100


def test_metrics_are_made_once_for_all_who_ask_meanwhile() -> None:
    stage = Stage()
    stage.is_waiting = True
    asking = [stage.connect() for _ in range(3)]
    for stream in asking:
        stream.client_sends(METRICS)
    assert ask(stage).startswith(b"HTTP/1.1 200 OK")  # /health, meanwhile
    assert not any(stream.received for stream in asking)
    stage.is_waiting = False
    stage.go_on()
    for stream in asking:
        stream.client_sends(b"")
        assert stream.received.endswith(b"up 1\n")
    assert stage.made == 1
    assert ask(stage, METRICS).endswith(b"up 1\n") and stage.made == 2


def test_who_has_gone_leaves_nothing_behind_while_metrics_are_made() -> None:
    """Where more ask than there are places, those that made room are not kept until the metrics are there."""
    stage = Stage()
    stage.is_waiting = True
    asked = [weakref.ref(ask_and_forget(stage)) for _ in range(HTTP_CONNECTIONS_MAX + 100)]
    gc.collect()
    assert sum(stream() is not None for stream in asked) == HTTP_CONNECTIONS_MAX
    stage.is_waiting = False
    stage.go_on()
    assert stage.made == 1


def test_metrics_go_on_being_made_once_where_who_asked_first_has_gone() -> None:
    stage = Stage()
    stage.is_waiting = True
    first = stage.connect()
    first.client_sends(METRICS)
    stage.pass_time(HTTP_ANSWER_S_MAX)
    second = stage.connect()
    second.client_sends(METRICS)
    stage.is_waiting = False
    stage.go_on()
    second.client_sends(b"")
    assert first.is_closed and second.received.endswith(b"up 1\n") and stage.made == 1


def test_a_head_is_let_go_of_once_it_is_read() -> None:
    stage = Stage()
    stage.is_waiting = True
    tracemalloc.start()
    try:
        asked = [stage.connect() for _ in range(HTTP_CONNECTIONS_MAX)]
        for stream in asked:
            stream.client_sends(METRICS[:-2] + b"X: " + bytes(HTTP_HEAD_BYTES_MAX - 100) + b"\r\n\r\n")
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < HTTP_CONNECTIONS_MAX * HTTP_HEAD_BYTES_MAX / 2


def test_metrics_that_do_not_come_end_the_connection() -> None:
    stage = Stage()
    stage.is_waiting = True
    stream = stage.connect()
    stream.client_sends(METRICS)
    stage.pass_time(HTTP_ANSWER_S_MAX)
    assert stream.is_closed
    stage.is_waiting = False
    stage.go_on()
    assert not stream.received and ask(stage, METRICS).endswith(b"up 1\n")


def test_metrics_that_cannot_be_made_are_an_error_and_the_next_are_tried_again() -> None:
    stage = Stage()
    stage.fails = True
    assert ask(stage, METRICS).startswith(b"HTTP/1.1 500")
    stage.fails = False
    assert ask(stage, METRICS).startswith(b"HTTP/1.1 200")
