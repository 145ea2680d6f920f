"""Long work in line: one slice in a turn, in order, a bounded number under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from moldau.runtime.line import SLICE_S, UNDER_WAY_MAX, Line, Pace, Slices, in_line, whole


class Loop:
    """Turns by hand; each look at the clock takes a quarter of a slice."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: deque[Callable[[], object]] = deque()
        self.line = Line(
            SimpleNamespace(monotonic=self.monotonic),  # type: ignore[arg-type]
            SimpleNamespace(call_soon=self.soon.append),  # type: ignore[arg-type]
        )

    def monotonic(self) -> float:
        self.now_s += SLICE_S / 4
        return self.now_s

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()


def count(steps: int, into: list[str], name: str) -> Slices[None]:
    for step in range(steps):
        into.append(f"{name}{step}")
        yield
    into.append(f"{name} done")


def test_a_turn_of_the_loop_runs_one_slice_of_one_piece_of_work() -> None:
    loop, seen = Loop(), []
    loop.line.put(count(20, seen, "a"))
    loop.line.put(count(20, seen, "b"))
    assert seen == []
    loop.turn()
    first = list(seen)
    assert 0 < len(first) < 10 and all(one.startswith("a") for one in first)
    loop.turn()
    assert all(one.startswith("b") for one in seen[len(first) :]) and len(seen) > len(first)
    while loop.soon:
        loop.turn()
    assert "a done" in seen and "b done" in seen and len(loop.line) == 0


def test_work_beyond_the_bound_begins_when_other_work_has_ended() -> None:
    loop, seen = Loop(), []
    for number in range(UNDER_WAY_MAX + 2):
        loop.line.put(count(30, seen, f"{number}-"))
    begun = lambda: {one.split("-")[0] for one in seen}  # noqa: E731
    most = 0
    while loop.soon:
        loop.turn()
        done = sum(one.endswith("done") for one in seen)
        most = max(most, len(begun()) - done)
    assert most == UNDER_WAY_MAX
    assert sum(one.endswith("done") for one in seen) == UNDER_WAY_MAX + 2


def test_who_asks_for_a_turn_gets_it_after_a_slice_of_those_before() -> None:
    loop, seen = Loop(), []
    loop.line.put(count(100, seen, "a"))
    loop.line.call(lambda: seen.append("called"))
    loop.turn()
    assert "called" not in seen
    loop.turn()
    assert seen[-1] == "called"


def test_work_that_fails_takes_nothing_with_it() -> None:
    loop, seen = Loop(), []

    def failing() -> Slices[None]:
        yield
        raise RuntimeError("no")

    loop.line.put(failing())
    loop.line.put(count(3, seen, "a"))
    with pytest.raises(RuntimeError):
        loop.turn()
    while loop.soon:
        loop.turn()
    assert seen[-1] == "a done"


def test_a_coroutine_breathes_only_when_its_slice_is_used_up() -> None:
    turns = 0

    async def run() -> int:
        nonlocal turns
        now_s = 0.0
        loop = asyncio.get_running_loop()
        clock = SimpleNamespace(monotonic=lambda: now_s)
        line = Line(clock, SimpleNamespace(call_soon=loop.call_soon))  # type: ignore[arg-type]
        pace = Pace(clock, line)  # type: ignore[arg-type]
        for _ in range(10):
            await pace.breathe()
        assert line.slices == 0
        now_s = 2 * SLICE_S
        await pace.breathe()
        assert line.slices == 1
        await pace.breathe()
        return line.slices

    assert asyncio.run(run()) == 1


def test_what_work_comes_to_is_the_same_whole_and_in_line() -> None:
    def add() -> Slices[int]:
        total = 0
        for one in range(50):
            total += one
            yield
        return total

    async def run() -> int:
        loop = asyncio.get_running_loop()
        ticks = iter(range(10_000))
        clock = SimpleNamespace(monotonic=lambda: next(ticks) * SLICE_S)
        line = Line(clock, SimpleNamespace(call_soon=loop.call_soon))  # type: ignore[arg-type]
        result = await in_line(Pace(clock, line), add())  # type: ignore[arg-type]
        assert line.slices > 10
        return result

    assert whole(add()) == asyncio.run(run()) == 1225


def test_what_is_urgent_begins_before_what_has_not_begun() -> None:
    loop, seen = Loop(), []
    for number in range(UNDER_WAY_MAX + 3):
        loop.line.put(count(10, seen, f"{number}-"))
    loop.line.put(count(10, seen, "urgent-"), is_urgent=True)
    while loop.soon:
        loop.turn()
    order = list(dict.fromkeys(one.split("-")[0] for one in seen))
    assert order[: UNDER_WAY_MAX + 1] == [*map(str, range(UNDER_WAY_MAX)), "urgent"]
