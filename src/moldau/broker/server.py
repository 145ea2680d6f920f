"""The listeners of a broker and the connections behind them: accepting, counting, idle time-outs.

`max.connections` holds back, as Kafka does: a connection beyond it is accepted and left unserved until another ends.
So does the number of descriptors that the process may have: some are kept for logs (`Net.accepted_max`). Where brokers
have a listener of their own, they get in beside all that (Kafka's ConnectionQuotas, `protectedListener`).
`max.connections.per.ip` refuses, and counts those that wait. A connection on which nothing happened for
`connections.max.idle.ms`, or that waited as long, is closed. Where there is no room for more, so are those that have
said nothing at all for SILENT_S_MAX: whoever opens all that there are and is silent keeps nobody out. A connection of a
TLS listener counts from its arrival, and is served once its handshake is made (`handshakes`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from typing import Any, NamedTuple, cast

from moldau.base.limits import (
    CONNECTIONS_MIN,
    CONNECTIONS_OF_BROKERS_MAX,
    CONNECTIONS_OF_BROKERS_SHARE,
    CONNECTIONS_WAITING_MAX,
    CONNECTIONS_WAITING_SHARE,
    HTTP_CONNECTIONS_MAX,
    PRIVATE_BUFFER_BYTES_MIN,
    RECEIVE_BUFFER_BYTES,
    SAID_OF_ADDRESS_MAX,
    SILENT_S_MAX,
    TLS_HANDSHAKES_MAX,
    TLS_HANDSHAKES_SHARE,
)
from moldau.broker.backlog import Backlog
from moldau.broker.connection import Connection, SecuredConnection
from moldau.broker.handshakes import Handshakes
from moldau.broker.intake import Intake
from moldau.broker.metrics.counters import Metrics
from moldau.broker.other_protocols import complaint, other_protocol
from moldau.broker.paced_arrivals import PacedArrivals
from moldau.broker.seldom import Seldom, SeldomOfEach
from moldau.broker.slot import Answer
from moldau.config.listeners import Endpoint
from moldau.runtime.line import Line
from moldau.runtime.ports import Listener, Runtime, Stream, Timer
from moldau.runtime.tls import TlsContext, TlsEnded, TlsError, TlsStream
from moldau.security.connection_rates import ConnectionRates
from moldau.security.networks import network_of
from moldau.wire.frames import WireError

log = logging.getLogger(__name__)

IDLE_SWEEPS_PER_TIMEOUT = 4
SEND_AWAY_POLL_S = 0.02
LOOK_INTERVAL_S = 5.0
CLIENT_TOLD_OF_EVERY_S = 60.0
MALFORMED_TOLD_OF_EVERY_S = 10.0
LOOKS_PER_TURN = 200
SILENT_PER_TURN = 10
SILENT_PAUSE_S = 0.005
"""How many that are silent are closed at once, and how long others are served before the next ones are."""


class Waiting(NamedTuple):
    """A connection that is held back."""

    stream: Stream | TlsStream
    listener_name: str
    since_s: float


class Tls(NamedTuple):
    """What a listener does before it serves."""

    context: Callable[[], TlsContext]
    principal_of: Callable[[bytes | None], str | None]
    """Of the certificate that a client has shown, if any; None: it is not served."""


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
        self.backlog = Backlog()
        self.frame_bytes_max = frame_bytes_max
        self.receive_view = self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """What all connections receive into; where the intake is full, only its beginning."""
        self.connections: dict[Connection, None] = {}  # in the order of arrival
        self._net = runtime.net
        self._dispatch = dispatch
        self.protected_listener: str | None = None
        """The brokers', where clients have another."""
        accepted_max = max(CONNECTIONS_MIN, runtime.net.accepted_max - HTTP_CONNECTIONS_MAX)
        self._waiting_max = min(CONNECTIONS_WAITING_MAX, accepted_max // CONNECTIONS_WAITING_SHARE)
        self._of_brokers_max = min(CONNECTIONS_OF_BROKERS_MAX, accepted_max // CONNECTIONS_OF_BROKERS_SHARE)
        self._descriptors_max = accepted_max - self._waiting_max - self._of_brokers_max
        """Of connections that are served, but for those that only brokers can have."""
        at_once_max = max(CONNECTIONS_MIN, min(TLS_HANDSHAKES_MAX, accepted_max // TLS_HANDSHAKES_SHARE))
        self._handshakes = Handshakes(runtime.clock, runtime.tasks, at_once_max)
        self._tls: dict[str, Tls] = {}
        """By listener."""
        self.welcome: Callable[[Connection], object] = lambda _connection: None
        """Called for each connection before anything of it is served."""
        self.farewell: Callable[[Connection], object] = lambda _connection: None
        """Called for each that is closed before it has said who it is."""
        self.end_strangers: Callable[[int], int] = lambda _number_max: 0
        """End some that have not said who they are, and could have by now; says how many there were."""
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self._per_ip: dict[str, int] = {}
        """Those that are served, and those that wait."""
        self._waiting: deque[Waiting] = deque()
        self.rates: ConnectionRates | None = None
        """While there is a limit on how fast connections may come."""
        self._paced: dict[str, PacedArrivals] = {}
        self._ended: deque[Connection] = deque()
        """By their clients, and not closed here yet."""
        self._opened: deque[Connection] = deque()
        """In the order of arrival; some of those who have said something since, or are gone, may still be in it."""
        self._silence: Timer | None = None
        self._seldom = Seldom(runtime.clock)
        self._tells_of_client = Seldom(runtime.clock, CLIENT_TOLD_OF_EVERY_S)
        self._tells_of_malformed = SeldomOfEach(runtime.clock, MALFORMED_TOLD_OF_EVERY_S, SAID_OF_ADDRESS_MAX)
        self._idle_s_max = idle_ms_max / 1000
        self._listeners: list[Listener] = []
        self._sweep: Timer | None = None
        self._look: Timer | None = None
        self._looked_s = runtime.clock.monotonic()
        self._to_look_at: deque[Connection] = deque()
        self._is_closing = False

    def listen_on(
        self,
        endpoints: Iterable[Endpoint],
        of_brokers: str | None,
        tls_of: Callable[[str], Tls | None] = lambda name: None,
    ) -> dict[str, Listener]:
        """Serve all of these; the brokers' is the one of that name, else the first."""
        found = {name: self.listen(name, host, port, tls_of(name)) for name, host, port, _ in endpoints}
        if len(found) > 1:
            self.protected_listener = of_brokers if of_brokers in found else next(iter(found))
        return found

    def listen(self, name: str, host: str, port: int, tls: Tls | None = None) -> Listener:
        if tls is None:
            listener = self._net.listen(host, port, lambda stream: self._accept(stream, name))
        else:
            self._tls[name] = tls
            listener = self._net.listen_tls(
                host, port, lambda stream: self._accept(stream, name), tls.context
            )
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

    def _accept(self, stream: Stream | TlsStream, listener_name: str) -> None:
        if self.rates is None:
            self._let_in(stream, listener_name)
            return
        paced = self._paced.get(listener_name)
        if paced is None:
            paced = self._paced[listener_name] = PacedArrivals(
                self.rates,
                self.clock,
                self.tasks,
                self.metrics,
                listener_name,
                self._let_in,
                self._may_wait,
                is_protected=listener_name == self.protected_listener,
                wait_s_max=self._idle_s_max if self._idle_s_max > 0 else inf,
            )
        paced.take(stream)

    def _may_wait(self) -> bool:
        """Whether there is room for one more connection that waits, for whatever it waits."""
        return len(self._waiting) + sum(map(len, self._paced.values())) < self._waiting_max

    def _let_in(self, stream: Stream | TlsStream, listener_name: str) -> None:
        ip = stream.peer[0]
        count = self._per_ip.get(ip, 0)
        if count >= self.connections_per_ip_max:
            self._say(f"a connection of {ip} is refused: {count} are there", "max.connections.per.ip")
            stream.close()
            return
        if not self._has_room(listener_name) and self._silence is None:
            self._silence = self.tasks.call_later(SILENT_S_MAX, self._end_silent)
        if not self._has_room(listener_name) and not self._may_wait():
            self._say(f"a connection of {ip} is refused: {len(self.connections)} are there", self._bound)
            stream.close()
            return
        self._per_ip[ip] = count + 1
        if self._has_room(listener_name):
            self._admit(stream, listener_name)
            return
        self._say(f"a connection of {ip} waits: {len(self.connections)} are there", self._bound)
        self.metrics.connections_held_back += 1
        self._waiting.append(Waiting(stream, listener_name, self.clock.monotonic()))

    @property
    def _served_max(self) -> int:
        return min(self.connections_max, self._descriptors_max)

    @property
    def _bound(self) -> str:
        """What keeps connections back."""
        if self.connections_max <= self._descriptors_max:
            return "max.connections"
        return "the descriptors that the process may have, of which some are kept for logs (ulimit -n)"

    def _has_room(self, listener_name: str) -> bool:
        """A protected listener has some beside the others', as it would not be one otherwise."""
        extra = self._of_brokers_max if listener_name == self.protected_listener else 0
        return len(self.connections) + len(self._handshakes) < self._served_max + extra

    def _say(self, what: str, bound: str) -> None:
        if self._seldom(bound):
            log.warning("%s, which is all that %s allows", what, bound)

    def _admit(self, stream: Stream | TlsStream, listener_name: str) -> None:
        tls = self._tls.get(listener_name)
        if tls is None:
            self._open(Connection(self, stream, listener_name, self._dispatch))
        else:
            secured = cast("TlsStream", stream)
            self._handshakes.begin(secured, lambda error: self._secured(secured, listener_name, tls, error))

    def _secured(self, stream: TlsStream, listener_name: str, tls: Tls, error: TlsError | None) -> None:
        principal = None if error is not None else tls.principal_of(stream.certificate)
        if principal is not None:
            self.metrics.tls_handshakes += 1
            connection = SecuredConnection(self, stream, listener_name, self._dispatch)
            connection.principal = principal
            self._open(connection)
            return
        self.metrics.tls_handshakes_failed += 1
        client = stream.peer[0]
        if not isinstance(error, TlsEnded) and self._tells_of_client((client, listener_name)):
            why = error or "no rule of ssl.principal.mapping.rules gives its certificate a name"
            log.warning("%s was not let in by the listener %s: %s", client, listener_name, why)
        self._turn_away(stream)
        self.tasks.call_soon(self._admit_waiting)

    def _open(self, connection: Connection) -> None:
        self.metrics.connections_opened += 1
        self.welcome(connection)
        self.connections[connection] = None
        self._opened.append(connection)
        while self._opened and not self._opened[0].is_silent:
            self._opened.popleft()

    def _end_silent(self) -> None:
        """Somebody found no room a while ago: close those who have said nothing for as long, some in each turn."""
        self._silence = None
        oldest_s = self.clock.monotonic() - SILENT_S_MAX
        self._opened = deque(one for one in self._opened if one.is_silent)
        late = [one for one in islice(self._opened, SILENT_PER_TURN) if one.last_active_s <= oldest_s]
        for connection in late:
            connection.close(None)
        ended = len(late) + self._handshakes.end_silent(SILENT_PER_TURN) + self.end_strangers(SILENT_PER_TURN)
        if ended and self._seldom("silence"):
            log.warning("connections that say nothing are closed: others find no room")
        if self._waiting and not self._is_closing:
            pause_s = SILENT_S_MAX if ended < SILENT_PER_TURN else SILENT_PAUSE_S
            self._silence = self.tasks.call_later(pause_s, self._end_silent)

    def end(self, connection: Connection) -> None:
        """Its client has ended it. Thousands may at the same time: in a turn that is used up they are put aside."""
        if not self.line.this_turn.is_used_up:
            self._close_ended_now(connection)
            return
        connection.stream.unwatch_readable()
        if not self._ended:
            self.tasks.call_soon(self._close_ended)
        self._ended.append(connection)

    def _close_ended(self) -> None:
        while self._ended and not self.line.this_turn.is_used_up:
            self._close_ended_now(self._ended.popleft())
        if self._ended:
            self.tasks.call_soon(self._close_ended)

    def _close_ended_now(self, connection: Connection) -> None:
        start_s = self.clock.monotonic()
        connection.close(None)
        self.line.this_turn.spend(self.clock.monotonic() - start_s)

    def on_connection_closed(self, connection: Connection) -> None:
        if connection.is_stranger:
            self.farewell(connection)
        if self.connections.pop(connection, self) is self:
            return
        self._leave(connection.stream.peer[0])
        self.metrics.connections_closed += 1
        if self._waiting and not self._is_closing:
            self.tasks.call_soon(self._admit_waiting)

    def refuse(self, connection: Connection, first: bytes, error: WireError) -> None:
        """No request can begin with these bytes, or they begin a malformed one. A client that speaks another protocol
        will try again, and again.
        """
        protocol = other_protocol(first)
        if protocol is None:
            self.end_malformed(connection, error)
            return
        self.metrics.malformed_requests += 1
        stream = connection.stream
        client = stream.peer[0].removeprefix("::ffff:")
        if self._tells_of_client(client):
            log.warning(complaint(protocol, client, connection.listener_name, stream.local))
        connection.close(None)

    def end_malformed(self, connection: Connection, error: WireError) -> None:
        self.metrics.malformed_requests += 1
        network, reason = network_of(connection.stream.peer[0]), f"malformed request: {error}"
        connection.close(reason if self._tells_of_malformed(network, (network, reason)) else None)

    def _leave(self, ip: str) -> None:
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]

    def _admit_waiting(self) -> None:
        """In the order in which they came. One that only its address has too many of by now is closed."""
        while self._waiting and not self._is_closing and self._has_room(self._waiting[0].listener_name):
            stream, listener_name, _ = self._waiting.popleft()
            if self._per_ip[stream.peer[0]] > self.connections_per_ip_max:
                self._turn_away(stream)
            else:
                self._admit(stream, listener_name)

    def _turn_away(self, stream: Stream) -> None:
        self._leave(stream.peer[0])
        stream.close()

    def _schedule_sweep(self, *_: Any) -> None:
        self._sweep = self.tasks.call_later(self._idle_s_max / IDLE_SWEEPS_PER_TIMEOUT, self._sweep_idle)

    def _sweep_idle(self) -> None:
        oldest = self.clock.monotonic() - self._idle_s_max
        for connection in [c for c in self.connections if c.last_active_s < oldest and c.is_idle]:
            connection.close("idle for connections.max.idle.ms")
        while self._waiting and self._waiting[0].since_s < oldest:
            self._turn_away(self._waiting.popleft().stream)
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
        return any(c.client_software and not c.is_of_a_broker for c in self.connections)

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
        if self._silence is not None:
            self._silence.cancel()
        self._handshakes.close()
        for waiting in self._waiting:
            waiting.stream.close()
        for paced in self._paced.values():
            paced.close()
        self._waiting.clear()
        for connection in list(self.connections):
            connection.close(None)
