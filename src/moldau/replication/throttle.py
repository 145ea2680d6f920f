"""The driver of one replication quota: who was held back by it is called when there is room again.

One timer for all who wait, and none while nobody does. Another limit, and another list of throttled replicas, take
effect at once.
"""

from __future__ import annotations

from typing import Protocol

from moldau.replication.quota import QuotaWindow, ReplicationQuota
from moldau.runtime.ports import Runtime, Timer

TIMER_GRAIN_S = 0.001
"""As in `deadlines`: an event loop may call back so much too early."""


class HeldBack(Protocol):
    """One who waits for room: a follower's session at its leader, or a follower's fetcher."""

    def on_room(self) -> None:
        """It may go on; where it is held back again, it waits again."""


class Throttle:
    def __init__(self, runtime: Runtime, window: QuotaWindow) -> None:
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._quota = ReplicationQuota(window)
        self._waiting: dict[HeldBack, None] = {}
        self._timer: Timer | None = None

    @property
    def limit(self) -> int | None:
        return self._quota.limit

    def set_limit(self, limit: int | None) -> None:
        """Bytes a second; None is no limit."""
        if limit != self._quota.limit:
            self._quota.limit = limit
            self.look_again()

    @property
    def rate(self) -> float:
        return self._quota.rate(self._clock.monotonic())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def is_exceeded(self, more_bytes: int = 0) -> bool:
        """With some that are about to be recorded."""
        return self._quota.limit is not None and self._quota.is_exceeded(self._clock.monotonic(), more_bytes)

    def record(self, bytes_: int) -> None:
        self._quota.record(bytes_, self._clock.monotonic())

    def when_room(self, held: HeldBack) -> None:
        self._waiting[held] = None
        if self._timer is None:
            self._set_timer()

    def leave(self, held: HeldBack) -> None:
        self._waiting.pop(held, None)

    def look_again(self) -> None:
        """What is throttled, or how much, has changed: whoever waits asks again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for held in waiting:
            held.on_room()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _set_timer(self) -> None:
        room_in_s = self._quota.room_in_s(self._clock.monotonic())
        self._timer = self._tasks.call_later(room_in_s + TIMER_GRAIN_S, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if self.is_exceeded():
            self._set_timer()
        else:
            self.look_again()
