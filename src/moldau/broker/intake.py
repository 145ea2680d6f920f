"""How much of requests is in memory at once, over all connections: frames being received, and large ones being served.

Kafka's `queued.max.request.bytes`. Where it is full, a connection whose buffer is full waits for room, in the order in
which they asked; small requests need none. So that nobody waits for ever:
- One frame at a time has the right of way, and may grow past the bound: connections that hold a part each, and wait for
  the rest, come to an end one after the other.
- Who has had room for FRAME_S_MAX and has not filled it sends slowly, and is closed when others wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.base.limits import FRAME_S_MAX, INTAKE_BYTES_MAX, INTAKE_GRANTS_PER_TURN, INTAKE_LOOK_S
from moldau.runtime.ports import Clock, Tasks, Timer


class Holder(Protocol):
    """A connection that is receiving a frame into a buffer of its own."""

    @property
    def is_receiving(self) -> bool:
        """Whether it is up to the client that no more comes."""
        ...

    def on_room(self) -> None:
        """There is room for what it asked for: it takes it now."""
        ...

    def close(self, reason: str | None) -> None: ...


class Intake:
    def __init__(self, clock: Clock, tasks: Tasks, bytes_max: int) -> None:
        self._clock = clock
        self._tasks = tasks
        self.bytes_max = INTAKE_BYTES_MAX if bytes_max < 0 else bytes_max
        self.bytes_held = 0
        self._since_s: dict[Holder, float] = {}  # from when on each has had the buffer that it fills now
        self._waiting: dict[Holder, int] = {}  # for so many bytes more, in the order in which they asked
        self._ahead: Holder | None = None
        """Who has the right of way."""
        self._look: Timer | None = None
        self._is_granting = False
        self._is_full = False
        self.on_full: Callable[[bool], object] = lambda is_full: None
        """Called when it is full, and when it is not any more: what is received at once is then small."""

    def has_room(self, size: int) -> bool:
        return self.bytes_held + size <= self.bytes_max

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
        if size:
            self._grant_soon()

    # ---- frames that are being received -----------------------------------------------------------------------

    def receives(self, holder: Holder) -> None:
        """It has a buffer with room in it."""
        self._since_s[holder] = self._clock.monotonic()

    def may_grow(self, holder: Holder, size: int) -> bool:
        """Whether its buffer may become so much larger now; else `on_room` is called when it may."""
        if not self._waiting and self._has_way(holder, size):
            return True
        self._waiting[holder] = size
        if self._look is None:
            self._look = self._tasks.call_later(INTAKE_LOOK_S, self._look_again)
        self._grant_soon()
        return False

    def end(self, holder: Holder) -> None:
        """Its frame is there, or its client gone."""
        self._since_s.pop(holder, None)
        self._waiting.pop(holder, None)
        if self._ahead is holder:
            self._ahead = None
            self._grant_soon()

    def _has_way(self, holder: Holder, size: int) -> bool:
        if self.has_room(size) or self._ahead is holder:
            return True
        if self._ahead is None:
            self._ahead = holder
        return self._ahead is holder

    def _grant_soon(self) -> None:
        if self._waiting and not self._is_granting:
            self._is_granting = True
            self._tasks.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_granting = False
        for _ in range(INTAKE_GRANTS_PER_TURN):
            holder = self._ahead if self._ahead in self._waiting else next(iter(self._waiting), None)
            if holder is None or not self._has_way(holder, self._waiting[holder]):
                return
            del self._waiting[holder]
            holder.on_room()
        self._grant_soon()

    def _look_again(self) -> None:
        """Frames that arrive slowly give way to those who wait."""
        self._look = None
        oldest_s = self._clock.monotonic() - FRAME_S_MAX
        slow = [one for one, since_s in self._since_s.items() if since_s < oldest_s and one.is_receiving]
        for holder in slow:
            holder.close("a request that arrives slowly holds room that others wait for")
        if self._waiting:
            self._look = self._tasks.call_later(INTAKE_LOOK_S, self._look_again)

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._waiting.clear()
