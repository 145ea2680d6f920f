"""Who gets in: connections by descriptors, by `max.connections`, by address, and the brokers' own listener."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.limits import CONNECTIONS_WAITING_MAX, HTTP_CONNECTIONS_MAX, SILENT_S_MAX, TURN_S
from moldau.broker import server
from moldau.broker.metrics.counters import Metrics
from moldau.broker.server import IDLE_SWEEPS_PER_TIMEOUT, SILENT_PAUSE_S, SILENT_PER_TURN, Server
from moldau.config.listeners import Endpoint
from moldau.runtime.line import Line
from moldau.runtime.ports import Stream

ANY = 2**31 - 1
IDLE_MS = 600_000


class FakeStream:
    def __init__(self, ip: str) -> None:
        self.peer = (ip, 4711)
        self.local = ("127.0.0.1", 9092)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def unwatch_readable(self) -> None: ...


class FakeConnection:
    """As much of a connection as the server looks at."""

    is_idle = True
    is_silent = True
    is_stranger = False
    is_closed = False
    client_software = None

    def __init__(self, server: Server, stream: FakeStream, listener_name: str, dispatch: object) -> None:
        self.stream = stream
        self.last_active_s = server.clock.monotonic()
        self._server: Any = server

    def look(self) -> None: ...

    def close(self, reason: str | None) -> None:
        self.is_closed, self.is_silent = True, False
        self.stream.close()
        self._server.on_connection_closed(self)


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "Connection", FakeConnection)


class Stage:
    """A server without sockets; time passes when it is told to."""

    def __init__(
        self,
        accepted_max: int = 1_000_000,
        connections_max: int = ANY,
        per_ip_max: int = ANY,
        listeners: tuple[str, ...] = ("CLIENTS", "BROKERS"),
        of_brokers: str | None = "BROKERS",
    ) -> None:
        self.now_s = 1000.0
        self._timers: list[tuple[float, Callable[[], object]]] = []
        self._soon: list[Callable[[], object]] = []
        self._accept: dict[str, Callable[[Stream], None]] = {}
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        tasks = SimpleNamespace(call_soon=self._soon.append, call_later=self._call_later)
        net = SimpleNamespace(accepted_max=accepted_max, listen=self._listen)
        runtime: Any = SimpleNamespace(clock=clock, tasks=tasks, net=net)
        self.server = Server(
            runtime,
            Metrics(),
            lambda *_: None,
            lambda error: None,
            Line(runtime.clock, runtime.tasks),
            frame_bytes_max=100,
            connections_max=connections_max,
            connections_per_ip_max=per_ip_max,
            idle_ms_max=IDLE_MS,
            queued_bytes_max=-1,
        )
        self.server.listen_on([Endpoint(name, name, 0) for name in listeners], of_brokers)

    def _listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Any:
        self._accept[host] = accept
        return SimpleNamespace(close=lambda: None)

    def _call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        self._timers.append((self.now_s + delay_s, callback))
        return SimpleNamespace(cancel=lambda: None)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self._timers if timer[0] <= self.now_s]
        self._timers = [timer for timer in self._timers if timer not in due]
        for _, callback in due:
            callback()

    def connect(self, count: int = 1, ip: str = "10.0.0.1", listener: str = "CLIENTS") -> list[FakeStream]:
        streams = [FakeStream(ip) for _ in range(count)]
        for stream in streams:
            self._accept[listener](stream)  # type: ignore[arg-type]
        return streams

    def is_served(self, stream: FakeStream) -> bool:
        return any(connection.stream is stream for connection in self.server.connections)  # type: ignore[comparison-overlap]

    def end(self, stream: FakeStream) -> None:
        self._connection(stream).close(None)
        self.turn()

    def turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def _connection(self, stream: FakeStream) -> Any:
        return next(one for one in self.server.connections if one.stream is stream)  # type: ignore[comparison-overlap]


def states(stage: Stage, streams: list[FakeStream]) -> tuple[int, int, int]:
    """How many are served, wait, and are closed."""
    served = sum(map(stage.is_served, streams))
    closed = sum(stream.is_closed for stream in streams)
    return served, len(streams) - served - closed, closed


def test_clients_take_no_descriptor_that_is_kept_for_others() -> None:
    accepted_max = 64 + HTTP_CONNECTIONS_MAX
    stage = Stage(accepted_max)
    streams = stage.connect(300)
    assert states(stage, streams) == (48, 8, 244)
    stage.end(streams[0])
    assert states(stage, streams) == (48, 7, 245), "the first that waits is served"


def test_brokers_get_in_on_their_own_listener_when_clients_have_taken_all() -> None:
    stage = Stage(64 + HTTP_CONNECTIONS_MAX)
    stage.connect(300)
    assert states(stage, stage.connect(8, listener="BROKERS")) == (8, 0, 0)
    assert states(stage, stage.connect(1, listener="BROKERS")) == (0, 0, 1), "these are bounded, too"


def test_brokers_get_in_over_max_connections_as_with_kafka() -> None:
    stage = Stage(connections_max=2)
    assert states(stage, stage.connect(3)) == (2, 1, 0)
    assert states(stage, stage.connect(5, listener="BROKERS")) == (5, 0, 0)


def test_without_a_listener_of_their_own_brokers_wait_like_everyone() -> None:
    stage = Stage(connections_max=2, listeners=("CLIENTS",), of_brokers="CLIENTS")
    stage.connect(2)
    assert states(stage, stage.connect(1)) == (0, 1, 0)


def test_brokers_use_the_first_listener_where_none_is_named_as_theirs() -> None:
    stage = Stage(connections_max=0, listeners=("BROKERS", "CLIENTS"), of_brokers=None)
    assert states(stage, stage.connect(1)) == (0, 1, 0)
    assert states(stage, stage.connect(1, listener="BROKERS")) == (1, 0, 0)


def test_so_many_wait_and_further_ones_are_closed() -> None:
    stage = Stage(connections_max=2)
    assert states(stage, stage.connect(2_000)) == (
        2,
        CONNECTIONS_WAITING_MAX,
        2_000 - 2 - CONNECTIONS_WAITING_MAX,
    )


def test_an_address_has_its_bound_also_by_those_that_wait() -> None:
    stage = Stage(connections_max=2, per_ip_max=3)
    streams = stage.connect(5)
    assert states(stage, streams) == (2, 1, 2)
    others = stage.connect(1, ip="10.0.0.2")
    assert states(stage, others) == (0, 1, 0)
    for stream in streams[:2]:
        stage.end(stream)
    assert states(stage, streams[2:3]) == (1, 0, 0) and states(stage, others) == (1, 0, 0)
    assert states(stage, stage.connect(5)) == (0, 2, 3), "who has left is not counted any more"


def test_an_address_that_may_have_fewer_by_now_loses_those_that_wait() -> None:
    stage = Stage(connections_max=2)
    streams = stage.connect(4)
    stage.server.set_limits(2, 2)
    stage.end(streams[0])
    assert states(stage, streams) == (2, 0, 2), "one is closed, the next one is within the bound"


def test_who_waits_as_long_as_an_idle_connection_may_is_closed() -> None:
    stage = Stage(connections_max=1)
    (served, waiting) = stage.connect(2)
    stage._connection(served).is_silent = False
    for _ in range(IDLE_SWEEPS_PER_TIMEOUT + 2):
        stage._connection(served).last_active_s = stage.now_s
        stage.pass_time(IDLE_MS / 1000 / IDLE_SWEEPS_PER_TIMEOUT)
    assert waiting.is_closed and not served.is_closed
    assert states(stage, stage.connect(1)) == (0, 1, 0)


def test_who_takes_all_connections_and_says_nothing_keeps_nobody_out() -> None:
    stage = Stage(connections_max=100)
    speaking, silent = stage.connect(50), stage.connect(50)
    for stream in speaking:
        stage._connection(stream).is_silent = False
    (other,) = stage.connect(1, ip="10.0.0.2")
    assert states(stage, [other]) == (0, 1, 0)
    stage.pass_time(SILENT_S_MAX)
    stage.turn()
    assert states(stage, [other]) == (1, 0, 0)
    assert states(stage, silent) == (50 - SILENT_PER_TURN, 0, SILENT_PER_TURN), "others are served between"
    assert states(stage, speaking) == (50, 0, 0)
    stage.connect(60, ip="10.0.0.3")
    stage.pass_time(SILENT_S_MAX)
    for _ in range(10):
        stage.pass_time(SILENT_PAUSE_S)
        stage.turn()
    assert states(stage, silent) == (0, 0, 50) and states(stage, speaking) == (50, 0, 0)


def test_silence_is_no_fault_while_there_is_room() -> None:
    stage = Stage(connections_max=100)
    streams = stage.connect(99)
    stage.pass_time(10 * SILENT_S_MAX)
    assert states(stage, streams) == (99, 0, 0)


def test_who_has_just_come_has_time_to_say_something() -> None:
    stage = Stage(connections_max=2)
    (old,) = stage.connect(1)
    stage.pass_time(SILENT_S_MAX)
    (young,) = stage.connect(1)
    (other,) = stage.connect(1)
    stage.pass_time(SILENT_S_MAX / 2)
    young_connection = stage._connection(young)
    stage.pass_time(SILENT_S_MAX / 2)
    stage.turn()
    assert old.is_closed and stage.is_served(other)
    assert young_connection.is_closed, "it said nothing for as long"


def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    stage = Stage()
    for _ in range(100):
        (stream,) = stage.connect(1)
        stage.end(stream)
    assert len(stage.server._opened) <= 1


def test_of_thousands_that_end_at_the_same_time_some_are_closed_in_each_turn() -> None:
    stage = Stage()
    crowd = [stage._connection(stream) for stream in stage.connect(3000)]
    took_s = TURN_S / 100

    def close(connection: FakeConnection) -> None:
        stage.now_s += took_s
        FakeConnection.close(connection, None)

    for connection in crowd:
        connection.close = lambda _, one=connection: close(one)
        stage.server.end(connection)
    in_turns = [sum(one.is_closed for one in crowd)]
    while stage._soon:
        for callback in [stage._soon.pop(0) for _ in range(len(stage._soon))]:
            callback()
        in_turns.append(sum(one.is_closed for one in crowd))
    assert in_turns[-1] == 3000
    assert max(after - before for before, after in pairwise([0, *in_turns])) <= 102


def test_a_crowd_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(64 + HTTP_CONNECTIONS_MAX, per_ip_max=100)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            for ip in ("10.0.0.1", "10.0.0.2"):
                stage.connect(200, ip=ip)
            stage.pass_time(61)
    crowd = [record for record in caplog.records if "kept for logs" in record.getMessage()]
    assert len(crowd) == 3
