"""How much of requests is in memory at once, over all connections: frames being received, and large ones being served.

Kafka's `queued.max.request.bytes`. Where it is full, connections that need more room for a frame wait for it, in the
order in which they asked; small requests need none. So that nobody can hold all of it by sending slowly, a connection
whose frame has been arriving for longer than FRAME_S_MAX is closed when others wait for the room that it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from moldau.base.limits import FRAME_S_MAX, INTAKE_BYTES_MAX, INTAKE_LOOK_S
from moldau.runtime.ports import Clock, Tasks, Timer


class Holder(Protocol):
    """A connection that is receiving a frame into a buffer of its own."""

    def close(self, reason: str | None) -> None: ...


class Intake:
    def __init__(self, clock: Clock, tasks: Tasks, bytes_max: int) -> None:
        self._clock = clock
        self._tasks = tasks
        self.bytes_max = INTAKE_BYTES_MAX if bytes_max < 0 else bytes_max
        self.bytes_held = 0
        self._since_s: dict[Holder, float] = {}  # when each began to receive its frame, the oldest first
        self._waiting: deque[Callable[[], object]] = deque()
        self._look: Timer | None = None
        self._is_full = False
        self.on_full: Callable[[bool], object] = lambda is_full: None
        """Called when it is full, and when it is not any more: what is received at once is then small."""

    def has_room(self, size: int, own: int = 0) -> bool:
        """For so many bytes more, beside the frame's own. One frame may be larger than all, if there is no other."""
        return self.bytes_held + size <= self.bytes_max or self.bytes_held == own

    def take(self, size: int) -> None:
        self.bytes_held += size
        if self.bytes_held > self.bytes_max and not self._is_full:
            self._is_full = True
            self.on_full(True)

    def give_back(self, size: int) -> None:
        self.bytes_held -= size
        if self.bytes_held <= self.bytes_max and self._is_full:
            self._is_full = False
            self.on_full(False)
        if self._waiting and size:
            self._tasks.call_soon(self._wake)

    def begin(self, holder: Holder) -> None:
        """It has begun to receive a frame."""
        if holder not in self._since_s:
            self._since_s[holder] = self._clock.monotonic()

    def end(self, holder: Holder) -> None:
        self._since_s.pop(holder, None)

    def when_room(self, callback: Callable[[], object]) -> None:
        """Call back, once, when it is worth to look again."""
        self._waiting.append(callback)
        if self._look is None:
            self._look = self._tasks.call_later(INTAKE_LOOK_S, self._look_again)

    def _wake(self) -> None:
        """All who wait look again, in their order: who finds no room waits anew."""
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()

    def _look_again(self) -> None:
        self._look = None
        oldest_s = self._clock.monotonic() - FRAME_S_MAX
        for holder in [one for one, since_s in self._since_s.items() if since_s < oldest_s]:
            holder.close("a request that arrives slowly holds room that others wait for")
        self._wake()

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._waiting.clear()
