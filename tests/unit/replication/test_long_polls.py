"""Long polls: answered when there is enough, when time is up, and never twice."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from moldau.base.limits import WAKEUPS_PER_TURN
from moldau.replication.deadlines import TIMER_GRAIN_S
from moldau.replication.long_polls import LongPoll, LongPolls


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class World:
    """A clock and a loop that tests turn by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: list[Callable[[], object]] = []
        self._timers: list[tuple[float, int, Timer, Callable[[], object]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._soon.append(lambda: callback(*args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer()
        self._count += 1
        heapq.heappush(self._timers, (self.now_s + delay_s, self._count, timer, lambda: callback(*args)))
        return timer

    def turn(self) -> None:
        due, self._soon = self._soon, []
        for callback in due:
            callback()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        while self._timers and self._timers[0][0] <= self.now_s:
            _, _, timer, callback = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                callback()


class Partition:
    def __init__(self) -> None:
        self.watchers: dict[LongPoll, None] = {}


def setup() -> tuple[World, LongPolls, Partition, list[str]]:
    world = World()
    return world, LongPolls(world, world), Partition(), []  # type: ignore[arg-type]


def poll(
    done: list[str], name: str, *partitions: Partition, deadline_s: float = 1.0, missing: int = 1
) -> LongPoll:
    return LongPoll(
        lambda _: done.append(name), deadline_s, missing, [partition.watchers for partition in partitions]
    )


def test_a_poll_is_answered_after_the_append_and_not_within_it() -> None:
    world, polls, partition, done = setup()
    polls.park(poll(done, "a", partition))
    polls.on_growth(partition.watchers, 10)
    assert done == []
    world.turn()
    assert done == ["a"] and not partition.watchers and polls.count == 0


def test_a_poll_waits_until_all_its_missing_bytes_are_there() -> None:
    world, polls, partition, done = setup()
    polls.park(poll(done, "a", partition, missing=100))
    polls.on_growth(partition.watchers, 60)
    world.turn()
    assert done == []
    polls.on_growth(partition.watchers, 60)
    world.turn()
    assert done == ["a"]


def test_time_runs_out_in_the_order_of_deadlines() -> None:
    world, polls, partition, done = setup()
    polls.park(poll(done, "late", partition, deadline_s=2.0))
    polls.park(poll(done, "early", partition, deadline_s=1.0))
    world.advance(1.0)
    assert done == []  # a timer may be early, an answer never
    world.advance(TIMER_GRAIN_S)
    assert done == ["early"]
    world.advance(1.0)
    assert done == ["early", "late"]


def test_growth_and_deadline_together_answer_once() -> None:
    world, polls, partition, done = setup()
    polls.park(poll(done, "a", partition))
    polls.on_growth(partition.watchers, 10)
    world.advance(2.0)
    world.turn()
    assert done == ["a"]


def test_a_cancelled_poll_is_never_answered() -> None:
    world, polls, partition, done = setup()
    waiting = poll(done, "a", partition)
    polls.park(waiting)
    polls.cancel(waiting)
    polls.on_growth(partition.watchers, 10)
    world.turn()
    world.advance(5.0)
    assert done == [] and not partition.watchers and polls.count == 0


def test_one_turn_answers_a_bounded_number() -> None:
    world, polls, partition, done = setup()
    for number in range(WAKEUPS_PER_TURN + 10):
        polls.park(poll(done, str(number), partition))
    polls.on_growth(partition.watchers, 10)
    world.turn()
    assert len(done) == WAKEUPS_PER_TURN
    world.turn()
    assert len(done) == WAKEUPS_PER_TURN + 10


def test_a_poll_on_two_partitions_leaves_both_when_one_grows() -> None:
    world, polls, first, done = setup()
    second = Partition()
    polls.park(poll(done, "a", first, second))
    polls.on_growth(second.watchers, 10)
    world.turn()
    assert done == ["a"] and not first.watchers and not second.watchers


def test_answered_polls_do_not_pile_up_behind_far_deadlines() -> None:
    world, polls, partition, done = setup()
    for number in range(1000):
        polls.park(poll(done, str(number), partition, deadline_s=1e6))
        polls.on_growth(partition.watchers, 10)
        world.turn()
    assert len(done) == 1000
    assert len(polls._deadlines) <= 128


def test_a_poll_is_queued_once_however_often_its_partition_grows() -> None:
    """And another partition's reader waits for no dead entries."""
    world, polls, busy, done = setup()
    quiet = Partition()
    for number in range(500):
        polls.park(poll(done, str(number), busy))
    for _ in range(20):
        polls.on_growth(busy.watchers, 10)
    polls.park(poll(done, "other", quiet))
    polls.on_growth(quiet.watchers, 10)
    assert len(polls._woken) == 501
    for _ in range(501 // WAKEUPS_PER_TURN + 1):
        world.turn()
    assert done[-1] == "other" and len(done) == 501


def test_a_change_of_the_partition_wakes_whoever_waits() -> None:
    world, polls, partition, done = setup()
    polls.park(poll(done, "a", partition, missing=10**9))
    polls.on_change(partition.watchers)
    world.turn()
    assert done == ["a"]


@pytest.mark.parametrize("end", ["answered", "out of time", "gone"])
def test_a_poll_that_is_done_lets_go_of_its_request(end: str) -> None:
    class Request:
        def complete(self, _: LongPoll) -> None: ...

    world, polls, partition, _ = setup()
    request = Request()
    waiting = LongPoll(request.complete, 1.0, 1, [partition.watchers])
    polls.park(waiting)
    freed = weakref.ref(request)
    del request
    if end == "answered":
        polls.on_growth(partition.watchers, 10)
        world.turn()
    elif end == "out of time":
        world.advance(1.1)
    else:
        polls.cancel(waiting)
    assert waiting.is_done and freed() is None
