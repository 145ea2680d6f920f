"""Deadlines of what waits as data: one heap and one timer for all of them.

What is done before its time leaves its deadline behind; those are dropped before they outnumber the living.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from moldau.runtime.ports import Clock, Tasks, Timer

TIMER_GRAIN_S = 0.001
"""Event loops count in milliseconds from when their turn began, and so call back up to one too early: a deadline would
be met by calling back over and over until it has come."""
DEAD_KEPT = 64
"""So few are never worth a look; beyond it, at most three dead ones are kept for each living one."""


class Waiter(Protocol):
    deadline_s: float

    @property
    def is_done(self) -> bool: ...


W = TypeVar("W", bound=Waiter)


class Deadlines(Generic[W]):
    def __init__(self, tasks: Tasks, clock: Clock, on_due: Callable[[W], object]) -> None:
        self._tasks = tasks
        self._clock = clock
        self._on_due = on_due
        self._entries: list[tuple[float, int, W]] = []
        self._sequence = 0
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self.living = 0

    def __len__(self) -> int:
        """With those that are done and not dropped yet."""
        return len(self._entries)

    def add(self, waiter: W) -> None:
        self.living += 1
        self._sequence += 1
        heapq.heappush(self._entries, (waiter.deadline_s, self._sequence, waiter))
        if self._timer is None or waiter.deadline_s < self._timer_due_s:
            self._set_timer(waiter.deadline_s)
        if len(self._entries) > DEAD_KEPT and len(self._entries) > 4 * self.living:
            self._entries = [entry for entry in self._entries if not entry[2].is_done]
            heapq.heapify(self._entries)

    def hasten(self, waiter: W, deadline_s: float) -> None:
        """One of those that wait has an earlier deadline now."""
        self._sequence += 1
        heapq.heappush(self._entries, (deadline_s, self._sequence, waiter))
        if self._timer is None or deadline_s < self._timer_due_s:
            self._set_timer(deadline_s)

    def note_done(self) -> None:
        """One of those that wait is done."""
        self.living -= 1

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._entries.clear()

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        left_s = max(0.0, due_s - self._clock.monotonic())
        self._timer = self._tasks.call_later(left_s + TIMER_GRAIN_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        while (entries := self._entries) and (entries[0][0] <= now_s or entries[0][2].is_done):
            waiter = heapq.heappop(entries)[2]
            if not waiter.is_done:
                self._on_due(waiter)
        if self._entries:
            self._set_timer(self._entries[0][0])
