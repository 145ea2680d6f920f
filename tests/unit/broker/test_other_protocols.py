"""Clients that speak TLS or HTTP to a plaintext listener: closed, and told of once in a while."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.limits import SAID_LATELY_MAX, SAID_OF_ADDRESS_MAX
from moldau.broker.metrics.counters import Metrics
from moldau.broker.other_protocols import HTTP, TLS, other_protocol
from moldau.broker.server import CLIENT_TOLD_OF_EVERY_S, MALFORMED_TOLD_OF_EVERY_S, Server
from moldau.runtime.line import Line
from moldau.wire.frames import WireError

CLIENT_HELLO = bytes.fromhex("16030102000100")
"""Where one of 517 bytes begins, as of OpenSSL and Java."""
INT_MAX = 2**31 - 1


class FakeStream:
    local = ("10.0.0.9", 9092)

    def __init__(self, ip: str) -> None:
        self.peer = (ip, 50000)
        self.is_open = True
        self.readable: Callable[[], object]
        self._incoming = b""

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self.readable = callback

    def recv_into(self, buffer: Any) -> int:
        taken, self._incoming = self._incoming[: len(buffer)], self._incoming[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def send(self, data: bytes) -> int:
        raise AssertionError("nothing is answered")

    def close(self) -> None:
        self.is_open = False

    def give(self, data: bytes) -> None:
        self._incoming = data
        self.readable()


class Stage:
    """A listener, on which time passes when it is told to."""

    def __init__(self, frame_bytes_max: int = 100 << 20) -> None:
        self.now_s = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        tasks = SimpleNamespace(
            call_soon=lambda callback: None, call_later=lambda delay_s, callback: SimpleNamespace()
        )
        net = SimpleNamespace(accepted_max=100_000, listen=self._listen)
        runtime: Any = SimpleNamespace(clock=clock, tasks=tasks, net=net)
        self.metrics = Metrics()
        server = Server(
            runtime,
            self.metrics,
            self._dispatch,
            pytest.fail,
            Line(runtime.clock, runtime.tasks),
            frame_bytes_max=frame_bytes_max,
            connections_max=INT_MAX,
            connections_per_ip_max=INT_MAX,
            idle_ms_max=0,
            queued_bytes_max=-1,
        )
        server.listen("PLAINTEXT", "", 9092)

    def _listen(self, _host: str, _port: int, accept: Callable[[Any], None]) -> Any:
        self._accept = accept
        return SimpleNamespace()

    @staticmethod
    def _dispatch(_connection: object, _frame: memoryview) -> None:
        raise WireError("API key 4711 is not one")

    def client_says(self, data: bytes, ip: str = "10.0.0.1") -> None:
        stream = FakeStream(ip)
        self._accept(stream)
        stream.give(data)
        assert not stream.is_open


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, logger="moldau")

    def since_last() -> list[str]:
        messages = caplog.messages.copy()
        caplog.clear()
        return messages

    return since_last


@pytest.mark.parametrize("frame_bytes_max", [100 << 20, INT_MAX])
@pytest.mark.parametrize(
    ("data", "spoken", "advice"),
    [
        (CLIENT_HELLO, "TLS", "its client needs security.protocol=PLAINTEXT"),
        (
            b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n",
            "HTTP",
            "metrics and health are on moldau.http.port",
        ),
        (b"POST /topics/orders HTTP/1.1\r\n", "HTTP", "which speaks Kafka's protocol"),
        (b"CONNECT broker:443 HTTP/1.1\r\n", "HTTP", "which speaks Kafka's protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP", "which speaks Kafka's protocol"),
    ],
)
def test_one_sentence_says_what_a_client_speaks_and_where(
    data: bytes, spoken: str, advice: str, frame_bytes_max: int, said: Callable[[], list[str]]
) -> None:
    """Whatever `socket.request.max.bytes` allows: no request but Produce may be as large as these bytes say."""
    Stage(frame_bytes_max).client_says(data)
    (sentence,) = said()
    assert sentence.startswith(f"10.0.0.1 speaks {spoken} to the listener PLAINTEXT on port 9092, ")
    assert advice in sentence


def test_a_client_is_told_of_once_a_minute_however_often_it_comes(said: Callable[[], list[str]]) -> None:
    stage = Stage()
    for _ in range(200):
        stage.client_says(CLIENT_HELLO)
        stage.now_s += 0.05
    assert len(said()) == 1
    stage.client_says(CLIENT_HELLO, ip="::ffff:10.0.0.1")  # the same one, on a socket for both families
    assert said() == []
    stage.client_says(CLIENT_HELLO, ip="10.0.0.2")
    assert len(said()) == 1
    stage.now_s += CLIENT_TOLD_OF_EVERY_S
    stage.client_says(CLIENT_HELLO)
    assert len(said()) == 1
    assert stage.metrics.malformed_requests == 203


def test_neither_memory_nor_the_log_grows_with_the_addresses(said: Callable[[], list[str]]) -> None:
    stage = Stage()
    for number in range(SAID_LATELY_MAX + 100):
        stage.client_says(CLIENT_HELLO, ip=f"2001:db8::{number:x}")
    assert len(said()) == SAID_LATELY_MAX
    stage.now_s += CLIENT_TOLD_OF_EVERY_S
    stage.client_says(CLIENT_HELLO, ip="2001:db8::ffff")
    assert len(said()) == 1


@pytest.mark.parametrize(
    "data",
    [struct.pack(">i", INT_MAX) + b"xxxx", struct.pack(">i", 10) + b"malformed!", b"\xff\xff\xff\xffxxxx"],
)
def test_what_is_malformed_in_another_way_is_called_malformed(
    data: bytes, said: Callable[[], list[str]]
) -> None:
    Stage().client_says(data)
    (sentence,) = said()
    assert sentence.startswith("closing the connection of 10.0.0.1:50000: malformed request: ")


def test_who_sends_much_that_is_malformed_does_not_hide_others(said: Callable[[], list[str]]) -> None:
    stage = Stage()
    for size in range(2 * SAID_LATELY_MAX):
        stage.client_says(struct.pack(">i", INT_MAX - size) + b"xxxx", ip=f"2001:db8::{size:x}")
    assert len(said()) == SAID_OF_ADDRESS_MAX
    stage.client_says(struct.pack(">i", INT_MAX) + b"xxxx", ip="10.0.0.2")
    (sentence,) = said()
    assert "10.0.0.2" in sentence
    assert stage.metrics.malformed_requests == 2 * SAID_LATELY_MAX + 1
    stage.now_s += MALFORMED_TOLD_OF_EVERY_S
    stage.client_says(struct.pack(">i", INT_MAX) + b"xxxx", ip="2001:db8::1")
    assert len(said()) == 1


def test_no_length_that_a_request_may_have_by_default_is_taken_for_another_protocol() -> None:
    assert other_protocol(struct.pack(">i", 100 << 20)) is None
    assert other_protocol(bytes(4)) is None
    assert (other_protocol(CLIENT_HELLO[:4]), other_protocol(b"GET ")) == (TLS, HTTP)
