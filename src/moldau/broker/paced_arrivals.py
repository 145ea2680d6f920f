"""New connections that come faster than they may: each waits for its turn, one after the other on each listener.

As Kafka's acceptors, which stop to take connections for as long. Here they are taken, and wait unserved, as many as the
server lets (`has_room`) and no longer than connections.max.idle.ms. One that is too fast for its address is closed, at
the end of a wait, so that whoever connects again and again is slowed down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.broker.metrics.counters import Metrics
from moldau.runtime.ports import Clock, Stream, Tasks, Timer
from moldau.runtime.tls import TlsStream
from moldau.security.connection_rates import ConnectionRates

ADMITTED_PER_TURN = 32

Newcomer = Stream | TlsStream


class PacedArrivals:
    """Of one listener."""

    def __init__(
        self,
        rates: ConnectionRates,
        clock: Clock,
        tasks: Tasks,
        metrics: Metrics,
        listener: str,
        open_: Callable[[Newcomer, str], object],
        has_room: Callable[[], bool],
        *,
        is_protected: bool,
        wait_s_max: float,
    ) -> None:
        self._rates = rates
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self._listener = listener
        self._open = open_
        self._has_room = has_room
        self._is_protected = is_protected
        self._wait_s_max = wait_s_max
        self._waiting: deque[tuple[Newcomer, float]] = deque()
        """The first of them has been counted already."""
        self._turn: Timer | None = None
        self._leaving: dict[Newcomer, Timer] = {}
        """Those that are refused, until they are closed."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._leaving)

    def take(self, stream: Newcomer) -> None:
        """A connection has come."""
        if self._turn is None:
            self._admit(stream)
        elif self._has_room():
            self._waiting.append((stream, self._clock.monotonic()))
        else:
            stream.close()

    @property
    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _admit(self, stream: Newcomer) -> bool:
        """Whether it need not wait."""
        wait_ms = self._rates.delay_ms(self._listener, self._now_ms, is_protected=self._is_protected)
        if wait_ms:
            self._metrics.connections_paced += 1
            self._waiting.appendleft((stream, self._clock.monotonic()))
            self._turn = self._tasks.call_later(wait_ms / 1000, self._on_turn)
            return False
        self._let_in(stream)
        return True

    def _on_turn(self) -> None:
        """Whoever has waited for it comes in."""
        self._turn = None
        self._let_in(self._waiting.popleft()[0])
        self._go_on()

    def _go_on(self) -> None:
        """And then whoever need not wait, some in each turn of the loop."""
        self._turn = None
        oldest_s = self._clock.monotonic() - self._wait_s_max
        for _ in range(min(ADMITTED_PER_TURN, len(self._waiting))):
            stream, since_s = self._waiting.popleft()
            if since_s < oldest_s:
                stream.close()
            elif not self._admit(stream):
                return
        if self._waiting:
            self._turn = self._tasks.call_later(0, self._go_on)

    def _let_in(self, stream: Newcomer) -> None:
        wait_ms = self._rates.refuse_ms(
            self._listener, stream.peer[0], self._now_ms, is_protected=self._is_protected
        )
        if not wait_ms:
            self._open(stream, self._listener)
            return
        self._metrics.connections_paced += 1
        if self._has_room():
            self._leaving[stream] = self._tasks.call_later(wait_ms / 1000, self._send_away, stream)
        else:
            stream.close()

    def _send_away(self, stream: Newcomer) -> None:
        del self._leaving[stream]
        stream.close()

    def close(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
        for stream, _ in self._waiting:
            stream.close()
        for stream, timer in self._leaving.items():
            timer.cancel()
            stream.close()
        self._waiting.clear()
        self._leaving.clear()
