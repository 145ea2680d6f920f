"""The TLS handshakes of a broker's clients that are under way: how many, for how long, and who makes room.

They compute elsewhere (`runtime.real.tls`); here they are counted. Each ends within TLS_HANDSHAKE_S_MAX. Where all
places are taken, the oldest whose client has said nothing for SILENT_S_MAX makes room for the next, or one whose client
has begun, and then let three times as long pass: whoever connects and is silent keeps nobody out. One that waits for
this side's own work is left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from moldau.base.limits import SILENT_S_MAX, TLS_HANDSHAKE_S_MAX
from moldau.runtime.ports import Clock, Tasks, Timer
from moldau.runtime.tls import TlsError, TlsStream

LOOK_S = SILENT_S_MAX / 2
BEGUN_PATIENCE = 3
"""So many times longer does a client have that has said something: thousands may come at the same time, from machines
that have as much to compute for it as this one."""
LOOKED_AT_MAX = 256
"""How many of the oldest are looked at for one that makes room."""

Done = Callable[[TlsError | None], object]


class _UnderWay(NamedTuple):
    since_s: float
    done: Done


class Handshakes:
    def __init__(
        self, clock: Clock, tasks: Tasks, at_once_max: int, patience_s: float = SILENT_S_MAX
    ) -> None:
        """`patience_s`: how long one may have waited for its client where others find no place."""
        self._patience_s = patience_s
        self._clock = clock
        self._tasks = tasks
        self._max = at_once_max
        self._under_way: dict[TlsStream, _UnderWay] = {}  # in the order of arrival
        self._waiting: deque[tuple[TlsStream, Done]] = deque()
        self._timer: Timer | None = None
        self.is_closed = False

    def __len__(self) -> int:
        """Those that wait for a place, too."""
        return len(self._under_way) + len(self._waiting)

    def begin(self, stream: TlsStream, done: Done) -> None:
        """`done` is called once, with what has failed, or None; but not at all where this is closed."""
        if len(self._under_way) >= self._max:
            self._make_room()
        if len(self._under_way) >= self._max:
            self._waiting.append((stream, done))
        else:
            self._begin(stream, done)

    def end_silent(self, number_max: int) -> int:
        """Where others find no room at all: end some that have waited for their clients for too long."""
        before = len(self._under_way)
        for _ in range(number_max):
            if not self._make_room():
                break
        return before - len(self._under_way)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in [*self._under_way, *(stream for stream, _ in self._waiting)]:
            stream.close()
        self._under_way.clear()
        self._waiting.clear()

    def _begin(self, stream: TlsStream, done: Done) -> None:
        self._under_way[stream] = _UnderWay(self._clock.monotonic(), done)
        if self._timer is None:
            self._timer = self._tasks.call_later(LOOK_S, self._look)
        stream.secure(lambda error: self._on_done(stream, error))

    def _on_done(self, stream: TlsStream, error: TlsError | None) -> None:
        one = self._under_way.pop(stream, None)
        if one is None:
            return
        one.done(error)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._under_way) < self._max and not self.is_closed:
            self._begin(*self._waiting.popleft())

    def _end(self, stream: TlsStream, reason: str) -> None:
        one = self._under_way.pop(stream)
        stream.close()
        one.done(TlsError(reason))

    def _make_room(self) -> bool:
        now_s = self._clock.monotonic()
        for stream, _ in zip(self._under_way, range(LOOKED_AT_MAX), strict=False):
            age_s = now_s - self._under_way[stream].since_s
            if age_s < self._patience_s:
                return False
            patience_s = self._patience_s * (BEGUN_PATIENCE if stream.has_begun else 1)
            if age_s >= patience_s and not stream.waits_for_us:
                self._end(stream, "it said nothing for a while, and others had no place")
                return True
        return False

    def _look(self) -> None:
        """The oldest are the first."""
        latest_s = self._clock.monotonic() - TLS_HANDSHAKE_S_MAX
        for stream in [one for one, under_way in self._under_way.items() if under_way.since_s <= latest_s]:
            self._end(stream, f"the handshake took longer than {TLS_HANDSHAKE_S_MAX:g} s")
        while self._waiting and len(self._under_way) >= self._max:
            if not self._make_room():
                break
            self._fill()
        self._fill()
        is_needed = (self._under_way or self._waiting) and not self.is_closed
        self._timer = self._tasks.call_later(LOOK_S, self._look) if is_needed else None
