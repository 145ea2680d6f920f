"""From a handler's result to an answer, however little the handler had to do for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker import dispatch
from moldau.broker.answers.logs import (
    DescribeProducersResponse,
    PartitionProducers,
    ProducerState,
    TopicResult,
)
from moldau.broker.dispatch import Dispatcher, Route
from moldau.broker.metrics.counters import Metrics
from moldau.broker.slot import Slot
from moldau.runtime.line import Line
from moldau.wire.codec import encode_request, encode_response
from moldau.wire.frames import request_header, response_frame

API, VERSION, CORRELATION_ID = 61, 0, 7


class FakeConnection:
    """Takes what the dispatcher parks."""

    meter = None
    is_closed = False
    principal, client_host, listener_name = "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT"

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.reason: str | None = None

    def park(self, *, held_bytes: int = 0) -> Slot:
        self.slots.append(Slot(self, False, held_bytes))  # type: ignore[arg-type]
        return self.slots[-1]

    def on_slot_filled(self, slot: Slot) -> None:
        assert slot.is_filled

    def close(self, reason: str | None) -> None:
        self.reason = reason
        self.is_closed = True


class Stage:
    """A dispatcher with one API, whose handler pauses once. Each look at the clock takes more than half a slice."""

    def __init__(self, response: DescribeProducersResponse) -> None:
        ticks = count()
        clock = SimpleNamespace(monotonic=lambda: next(ticks) * dispatch.FIRST_SLICE_S * 0.6)
        self.soon: deque[Callable[[], object]] = deque()
        tasks = SimpleNamespace(call_soon=self.soon.append)
        line = Line(clock, tasks)  # type: ignore[arg-type]
        broker: Any = SimpleNamespace(
            runtime=SimpleNamespace(clock=clock, tasks=tasks),
            line=line,
            metrics=Metrics(),
            throttling=None,
            active_controller=self,
        )

        def handle(_broker: object, _context: object, _request: object) -> Iterator[None]:
            return self._handled(response)

        route = Route("describe_producers", API, (0, 0))
        route.handle, route.serve, route.is_forwarded = handle, None, None
        self.dispatcher = Dispatcher(broker, {API: route})
        self.dispatcher.serve_clients()
        self.connection = FakeConnection()

    @staticmethod
    def _handled(response: DescribeProducersResponse) -> Any:
        return response
        yield

    def ask(self) -> Any:
        body = encode_request(API, VERSION, SimpleNamespace(topics=()))
        frame = memoryview(request_header(API, VERSION, CORRELATION_ID, "c") + body)
        return self.dispatcher(self.connection, frame)  # type: ignore[arg-type]

    def settle(self) -> None:
        while self.soon:
            self.soon.popleft()()


def described(times: int, producers: int) -> DescribeProducersResponse:
    one = PartitionProducers(
        0, ErrorCode.none, active_producers=(ProducerState(1, 0, 5, 1_700_000_000_000, 0, -1),) * producers
    )
    return DescribeProducersResponse((TopicResult("orders", (one,) * times),))


def framed(response: DescribeProducersResponse) -> bytes:
    return response_frame(API, VERSION, CORRELATION_ID, encode_response(API, VERSION, response))


def test_a_small_answer_is_packed_at_once() -> None:
    response = described(1, 1)
    stage = Stage(response)
    assert stage.ask() == framed(response) and not stage.connection.slots


def test_a_large_answer_that_was_quickly_found_is_packed_in_slices() -> None:
    response = described(1_500, 200)
    stage = Stage(response)
    assert stage.ask() is None, "not in one go, though its handler is done"
    (slot,) = stage.connection.slots
    assert not slot.is_filled
    stage.settle()
    assert slot.is_filled and b"".join(bytes(piece) for piece in slot.answer or ()) == framed(response)


def test_an_answer_larger_than_any_may_be_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.wire.writer.ANSWER_BYTES_MAX", 1_000)
    stage = Stage(described(1_500, 200))
    assert stage.ask() is None
    stage.settle()
    assert "the answer to DescribeProducers would take more than 1000 bytes" in str(stage.connection.reason)
