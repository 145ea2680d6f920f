"""TLS handshakes under way: bounded in number and time, and who makes room for the next."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from moldau.base.limits import SILENT_S_MAX, TLS_HANDSHAKE_S_MAX
from moldau.broker.handshakes import Handshakes
from moldau.runtime.tls import TlsError


class FakeStream:
    """Its handshake is made when the test says so."""

    def __init__(self) -> None:
        self.waits_for_us = self.has_begun = False
        self.is_closed = False
        self.is_begun = False
        self.done: Callable[[TlsError | None], object] = lambda error: None

    def secure(self, done: Callable[[TlsError | None], object]) -> None:
        self.is_begun = True
        self.done = done

    def close(self) -> None:
        self.is_closed = True


class Stage:
    def __init__(self, at_once_max: int) -> None:
        self.now_s = 100.0
        self._timers: list[tuple[float, Callable[[], object]]] = []
        clock: Any = SimpleNamespace(monotonic=lambda: self.now_s)
        tasks: Any = SimpleNamespace(call_later=self._call_later)
        self.handshakes = Handshakes(clock, tasks, at_once_max)
        self.ended: list[tuple[FakeStream, str | None]] = []

    def _call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        timer = (self.now_s + delay_s, callback)
        self._timers.append(timer)
        return SimpleNamespace(cancel=lambda: self._timers.remove(timer))

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._timers and (first := min(self._timers, key=lambda timer: timer[0]))[0] <= until_s:
            self._timers.remove(first)
            self.now_s = first[0]
            first[1]()
        self.now_s = until_s

    def begin(self) -> FakeStream:
        stream: Any = FakeStream()
        self.handshakes.begin(
            stream, lambda error: self.ended.append((stream, None if error is None else str(error)))
        )
        found: FakeStream = stream
        return found


def test_a_handshake_that_is_made_is_told_once_and_leaves_its_place() -> None:
    stage = Stage(at_once_max=2)
    one = stage.begin()
    assert len(stage.handshakes) == 1
    one.done(None)
    one.done(None)
    assert stage.ended == [(one, None)]
    assert len(stage.handshakes) == 0
    stage.pass_time(60)
    assert stage.ended == [(one, None)]


def test_one_that_takes_too_long_is_ended() -> None:
    stage = Stage(at_once_max=10)
    first = stage.begin()
    stage.pass_time(TLS_HANDSHAKE_S_MAX / 2)
    second = stage.begin()
    stage.pass_time(TLS_HANDSHAKE_S_MAX / 2 + SILENT_S_MAX)
    assert [stream for stream, _ in stage.ended] == [first]
    assert "longer than 10 s" in str(stage.ended[0][1])
    assert first.is_closed
    assert not second.is_closed


def test_where_all_places_are_taken_the_next_waits_for_one() -> None:
    stage = Stage(at_once_max=2)
    first, second, third = stage.begin(), stage.begin(), stage.begin()
    assert not third.is_begun
    assert len(stage.handshakes) == 3
    first.done(None)
    assert third.is_begun
    assert not second.is_closed


def test_the_oldest_that_waits_for_its_client_makes_room_and_no_other() -> None:
    stage = Stage(at_once_max=3)
    ours, silent, other = stage.begin(), stage.begin(), stage.begin()
    ours.waits_for_us = True
    stage.pass_time(SILENT_S_MAX * 1.5)
    late = stage.begin()
    assert [stream for stream, _ in stage.ended] == [silent]
    assert late.is_begun
    assert not ours.is_closed
    assert not other.is_closed


def test_a_client_that_has_begun_has_more_time() -> None:
    stage = Stage(at_once_max=2)
    begun, silent = stage.begin(), stage.begin()
    begun.has_begun = True
    stage.pass_time(SILENT_S_MAX * 1.2)
    stage.begin()
    assert [stream for stream, _ in stage.ended] == [silent]
    stage.pass_time(SILENT_S_MAX)
    assert not begun.is_closed
    stage.pass_time(SILENT_S_MAX)
    stage.begin()
    assert begun.is_closed


def test_those_who_wait_get_in_though_nobody_else_comes() -> None:
    stage = Stage(at_once_max=1)
    silent, waiting = stage.begin(), stage.begin()
    stage.pass_time(SILENT_S_MAX * 2)
    assert silent.is_closed
    assert waiting.is_begun
    waiting.done(None)
    assert [stream for stream, _ in stage.ended] == [silent, waiting]


def test_a_crowd_of_silent_ones_is_gone_in_the_end() -> None:
    stage = Stage(at_once_max=4)
    crowd = [stage.begin() for _ in range(20)]
    stage.pass_time(TLS_HANDSHAKE_S_MAX * 10)
    assert all(one.is_closed for one in crowd)
    assert len(stage.handshakes) == 0


def test_the_end_closes_all_and_calls_nobody() -> None:
    stage = Stage(at_once_max=1)
    first, second = stage.begin(), stage.begin()
    stage.handshakes.close()
    assert first.is_closed
    assert second.is_closed
    stage.pass_time(60)
    assert stage.ended == []


def test_where_others_find_no_room_at_all_those_who_say_nothing_are_ended_some_at_a_time() -> None:
    stage = Stage(at_once_max=100)
    silent = [stage.begin() for _ in range(30)]
    stage.pass_time(SILENT_S_MAX * 1.2)
    young = stage.begin()
    assert [stage.handshakes.end_silent(10) for _ in range(4)] == [10, 10, 10, 0]
    assert all(one.is_closed for one in silent)
    assert not young.is_closed
