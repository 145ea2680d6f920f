"""The listeners of a broker and the connections behind them: accepting, counting, idle time-outs.

`max.connections` holds back, as Kafka does: a connection beyond it is accepted and left unserved until another ends.
`max.connections.per.ip` refuses. A connection on which nothing happened for `connections.max.idle.ms` is closed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from moldau.base.limits import CONNECTIONS_WAITING_MAX, PRIVATE_BUFFER_BYTES_MIN, RECEIVE_BUFFER_BYTES
from moldau.broker.connection import Answer, Connection
from moldau.broker.intake import Intake
from moldau.broker.metrics import Metrics
from moldau.peers.peer import SOFTWARE_NAME as PEER_SOFTWARE
from moldau.runtime.line import Line
from moldau.runtime.ports import Listener, Runtime, Stream, Timer

log = logging.getLogger(__name__)

IDLE_SWEEPS_PER_TIMEOUT = 4
SEND_AWAY_POLL_S = 0.02
LOOK_INTERVAL_S = 5.0
LOOKS_PER_TURN = 200


class Server:
    def __init__(
        self,
        runtime: Runtime,
        metrics: Metrics,
        dispatch: Callable[..., Answer | None],
        on_failure: Callable[[BaseException], None],
        line: Line,
        *,
        frame_bytes_max: int,
        connections_max: int,
        connections_per_ip_max: int,
        idle_ms_max: int,
        queued_bytes_max: int,
    ) -> None:
        self.clock = runtime.clock
        self.tasks = runtime.tasks
        self.metrics = metrics
        self.fail = on_failure
        self.line = line
        self.intake = Intake(runtime.clock, runtime.tasks, queued_bytes_max)
        self.intake.on_full = self._on_intake_full
        self.frame_bytes_max = frame_bytes_max
        self.receive_view = self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """What all connections receive into; where the intake is full, only its beginning."""
        self.connections: dict[Connection, None] = {}  # in the order of arrival
        self._net = runtime.net
        self._dispatch = dispatch
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self._per_ip: dict[str, int] = {}
        self._waiting: deque[tuple[Stream, str]] = deque()
        self._idle_s_max = idle_ms_max / 1000
        self._listeners: list[Listener] = []
        self._sweep: Timer | None = None
        self._look: Timer | None = None
        self._looked_s = runtime.clock.monotonic()
        self._to_look_at: deque[Connection] = deque()
        self._is_closing = False

    def listen(self, name: str, host: str, port: int) -> Listener:
        listener = self._net.listen(host, port, lambda stream: self._accept(stream, name))
        self._listeners.append(listener)
        if self._sweep is None and self._idle_s_max > 0:
            self._schedule_sweep()
        if self._look is None:
            self._look = self.tasks.call_later(LOOK_INTERVAL_S, self._look_at_recent)
        return listener

    def _on_intake_full(self, is_full: bool) -> None:
        self.receive_buffer = self.receive_view[:PRIVATE_BUFFER_BYTES_MIN] if is_full else self.receive_view

    def set_limits(self, connections_max: int, connections_per_ip_max: int) -> None:
        """`max.connections` and `max.connections.per.ip`, changed while running."""
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self._admit_waiting()

    def _accept(self, stream: Stream, listener_name: str) -> None:
        ip = stream.peer[0]
        if self._per_ip.get(ip, 0) >= self.connections_per_ip_max:
            log.warning(
                "refusing a connection of %s: max.connections.per.ip=%d is reached",
                ip,
                self.connections_per_ip_max,
            )
            stream.close()
        elif len(self.connections) < self.connections_max:
            self._open(stream, listener_name)
        elif len(self._waiting) < CONNECTIONS_WAITING_MAX:
            self.metrics.connections_held_back += 1
            self._waiting.append((stream, listener_name))
        else:
            stream.close()

    def _open(self, stream: Stream, listener_name: str) -> None:
        ip = stream.peer[0]
        self._per_ip[ip] = self._per_ip.get(ip, 0) + 1
        self.metrics.connections_opened += 1
        self.connections[Connection(self, stream, listener_name, self._dispatch)] = None

    def on_connection_closed(self, connection: Connection) -> None:
        if self.connections.pop(connection, self) is self:
            return
        ip = connection.stream.peer[0]
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]
        self.metrics.connections_closed += 1
        if self._waiting and not self._is_closing:
            self.tasks.call_soon(self._admit_waiting)

    def _admit_waiting(self) -> None:
        while self._waiting and len(self.connections) < self.connections_max and not self._is_closing:
            self._open(*self._waiting.popleft())

    def _schedule_sweep(self, *_: Any) -> None:
        self._sweep = self.tasks.call_later(self._idle_s_max / IDLE_SWEEPS_PER_TIMEOUT, self._sweep_idle)

    def _sweep_idle(self) -> None:
        oldest = self.clock.monotonic() - self._idle_s_max
        for connection in [c for c in self.connections if c.last_active_s < oldest and c.is_idle]:
            connection.close("idle for connections.max.idle.ms")
        self._schedule_sweep()

    async def send_away(self, time_s: float) -> None:
        """Serve for a while longer, as long as there are clients: who learns from an answer that others lead and
        coordinate now does not try to connect to a port that is closed."""
        deadline_s = self.clock.monotonic() + time_s
        while self._has_clients and self.clock.monotonic() < deadline_s:
            await self.tasks.sleep(SEND_AWAY_POLL_S)

    @property
    def _has_clients(self) -> bool:
        """Who says what it is (KIP-511), and is not another broker."""
        return any(c.client_software and c.client_software[0] != PEER_SOFTWARE for c in self.connections)

    def _look_at_recent(self) -> None:
        """Look at all that were active since the last time. libuv stops to watch a socket when it tells of a reset: one
        that came with data is told once, and who has received the data hears no more of it.
        """
        since_s, self._looked_s = self._looked_s, self.clock.monotonic()
        self._to_look_at.extend(one for one in self.connections if one.last_active_s >= since_s)
        self._look_at_some()

    def _look_at_some(self) -> None:
        for _ in range(min(LOOKS_PER_TURN, len(self._to_look_at))):
            self._to_look_at.popleft().look()
        pause_s = 0.0 if self._to_look_at else LOOK_INTERVAL_S
        then = self._look_at_some if self._to_look_at else self._look_at_recent
        if not self._is_closing:
            self._look = self.tasks.call_later(pause_s, then)

    def stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        self._is_closing = True
        self.stop_listening()
        self.intake.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._look is not None:
            self._look.cancel()
        for stream, _ in self._waiting:
            stream.close()
        self._waiting.clear()
        for connection in list(self.connections):
            connection.close(None)
