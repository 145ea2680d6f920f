"""Answers that wait, parked as data: long polls of Fetch, with their deadlines and what would complete them.

One timer serves all deadlines. An append only notes which partition grew; the waiting fetches are answered in a later
turn of the loop, a bounded number in each, so that the producer gets its own answer first.

A poll that is done lets go of its request at once. Nothing here may go round in a circle, which only the garbage
collector would find: it hardly ever looks at what has waited for a while (`tune_gc`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.base.limits import WAKEUPS_PER_TURN
from moldau.runtime.ports import Clock, Tasks, Timer

TIMER_GRAIN_S = 0.001
"""Event loops count in milliseconds from when their turn began, and so call back up to one too early: a deadline would
be met by calling back over and over until it has come."""


class Watched(Protocol):
    """A partition, as far as a waiting fetch is concerned."""

    watchers: dict[LongPoll, None]


class LongPoll:
    """A fetch that waits for `missing_bytes` more in its partitions, or for its deadline."""

    __slots__ = ("complete", "deadline_s", "has_news", "missing_bytes", "partitions")

    def __init__(
        self,
        complete: Callable[[LongPoll], None],
        deadline_s: float,
        missing_bytes: int,
        partitions: Sequence[Watched],
    ) -> None:
        self.complete: Callable[[LongPoll], None] | None = complete
        """None when it is done: its deadline may stay here for a while, but not what the fetch has read."""
        self.deadline_s = deadline_s
        self.missing_bytes = missing_bytes
        self.partitions = partitions
        self.has_news = False
        """A partition has grown or changed since it was parked: what was read then is no longer the answer."""

    @property
    def is_done(self) -> bool:
        return self.complete is None


class LongPolls:
    def __init__(self, tasks: Tasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._deadlines: list[tuple[float, int, LongPoll]] = []
        self._sequence = 0
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self._woken: deque[LongPoll] = deque()
        self._is_waking = False
        self.count = 0

    def park(self, poll: LongPoll) -> None:
        for partition in poll.partitions:
            partition.watchers[poll] = None
        self.count += 1
        self._sequence += 1
        heapq.heappush(self._deadlines, (poll.deadline_s, self._sequence, poll))
        if self._timer is None or poll.deadline_s < self._timer_due_s:
            self._set_timer(poll.deadline_s)
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * self.count:
            self._forget_done()

    def cancel(self, poll: LongPoll) -> None:
        """Its client is gone."""
        self._finish(poll)

    def on_growth(self, partition: Watched, added_bytes: int) -> None:
        """A partition has more to read: note who has waited long enough, answer them in a later turn."""
        for poll in partition.watchers:
            poll.has_news = True
            poll.missing_bytes -= added_bytes
            if poll.missing_bytes <= 0 and not poll.is_done:
                self._woken.append(poll)
        self._schedule_wake()

    def on_change(self, partition: Watched) -> None:
        """A partition went away or changed its leader: whoever waits on it must look again."""
        for poll in partition.watchers:
            poll.has_news = True
            self._woken.append(poll)
        self._schedule_wake()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()
        self._woken.clear()

    def _schedule_wake(self) -> None:
        if self._woken and not self._is_waking:
            self._is_waking = True
            self._tasks.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        woken = self._woken
        for _ in range(min(WAKEUPS_PER_TURN, len(woken))):
            self._complete(woken.popleft())
        self._schedule_wake()

    def _complete(self, poll: LongPoll) -> None:
        complete = poll.complete
        if complete is not None:
            self._finish(poll)
            complete(poll)

    def _finish(self, poll: LongPoll) -> None:
        if poll.complete is None:
            return
        poll.complete = None
        self.count -= 1
        for partition in poll.partitions:
            partition.watchers.pop(poll, None)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        left_s = max(0.0, due_s - self._clock.monotonic())
        self._timer = self._tasks.call_later(left_s + TIMER_GRAIN_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        deadlines = self._deadlines
        now_s = self._clock.monotonic()
        while deadlines and (deadlines[0][0] <= now_s or deadlines[0][2].is_done):
            self._complete(heapq.heappop(deadlines)[2])
        if deadlines:
            self._set_timer(deadlines[0][0])

    def _forget_done(self) -> None:
        """Completed polls leave their deadline behind; drop those before they outnumber the living."""
        self._deadlines = [entry for entry in self._deadlines if not entry[2].is_done]
        heapq.heapify(self._deadlines)
