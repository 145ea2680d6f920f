"""One client connection: bytes in, frames to the dispatcher, answers out in the order of their requests.

Guarantees:
- Requests are served one after the other, as in Kafka, and answers leave in their order: a request that waits holds a
  `Slot`, and what came after it waits too. Only produces overlap, so that those in flight share one sync; their order
  of appending is the order in which they came.
- A frame that fits into the broker's shared receive buffer is served where it lies, without a copy. A larger one is
  gathered in a buffer of its own that grows with what really arrived.
- A client that does not read is held back: past the bounds in `base.limits` its requests are not read any more.
- A connection has a share of each turn of the loop (TURN_SHARE_S). One that has used it up goes on when it comes up in
  line (`runtime.line`): neither a thousand requests in one buffer nor a dear one again and again hold up the others.
  All of them together have TURN_S; then each is served one request more, and the rest in the next turn.
- What its frames and its answers take of memory is counted with those of all other connections (`intake`, `backlog`).
- Whatever goes wrong with one connection (malformed frames, a failing handler) ends that connection only.

It leaves out what a request means (`dispatch`), and idle time-outs and connection counts (`server`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from moldau.base.invariant import InvariantBroken
from moldau.base.limits import (
    ANSWERS_PARKED_MAX,
    DECODED_REQUEST_BYTES_MAX,
    FIRST_SLICE_S,
    OUTPUT_BYTES_HELD_MAX,
    OUTPUT_ITEMS_HELD_MAX,
    PRIVATE_BUFFER_BYTES_MIN,
    PRIVATE_BUFFER_GROWTH,
    PRIVATE_BUFFER_STEP_BYTES,
    TURN_SHARE_S,
)
from moldau.broker.metrics.counters import UNTIMED
from moldau.broker.outgoing import NOTHING, Outgoing
from moldau.broker.slot import Answer, Slot
from moldau.peers.peer import SOFTWARE_NAME as PEER_SOFTWARE
from moldau.runtime.line import Pace
from moldau.runtime.ports import Stream, Timer
from moldau.wire.frames import WireError

if TYPE_CHECKING:
    from moldau.broker.server import Server
    from moldau.security.quota_meters import Meter

log = logging.getLogger(__name__)

LENGTH = Struct(">i")
LENGTH_BYTES = 4
PRODUCE_KEY = b"\0\0"
REQUEST_BYTES_MIN = 8  # api key, version, correlation id

TIMER_GRAIN_S = 0.001  # an event loop may call back so much too early

FOR_TURN, FOR_ROOM, MUTED = 1, 2, 4
"""Why a connection is not read now, as bits: it waits, having used up its share of a turn; for the rest of a frame, in
the intake; for the end of the pauses that it was given."""


class Connection(Outgoing):
    __slots__ = (
        "_filled",
        "_is_in_line",
        "_is_paused",
        "_muted_until_s",
        "_partial",
        "_since_s",
        "_slots",
        "_unmuting",
        "_waits",
        "began_s",
        "client_host",
        "client_software",
        "dispatch",
        "durations",
        "frame_bytes_max",
        "frame_bytes_min",
        "is_stranger",
        "listener_name",
        "meter",
        "principal",
    )

    def __init__(
        self, server: Server, stream: Stream, listener_name: str, dispatch: Callable[..., Answer | None]
    ) -> None:
        super().__init__(server, stream)
        self.listener_name = listener_name
        self.principal = "User:ANONYMOUS"
        self.is_stranger = False
        """It has yet to say who it is: its principal means nothing."""
        self.client_host = stream.peer[0]
        self.client_software: tuple[str, str] | None = None
        self.meter: Meter | None = None
        """What its client uses of its quotas, where somebody has some."""
        self._since_s = self.began_s = self.last_active_s
        self.durations = UNTIMED
        """Where it is noted how long the request takes that is being dispatched."""
        self.dispatch = dispatch
        """What serves its frames, which may change from one frame to the next."""
        self.frame_bytes_min = REQUEST_BYTES_MIN
        self.frame_bytes_max = server.frame_bytes_max
        self._partial: bytearray | None = None  # received, not served yet; its first `_filled` bytes count
        self._filled = 0
        self._slots: deque[Slot] = NOTHING
        self._is_in_line = False  # a request has arrived that must wait for an earlier one
        self._is_paused = False
        self._waits = 0
        self._muted_until_s = 0.0
        self._unmuting: Timer | None = None
        stream.watch_readable(self.on_readable)

    # ---- receiving --------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        server = self._server
        try:
            if self._partial is None:
                filled = self.stream.recv_into(server.receive_buffer)
                view = server.receive_view
                server.metrics.bytes_in += filled
            else:
                filled = self._receive_into_partial()
                view = memoryview(self._partial)
        except (BlockingIOError, InterruptedError):
            if self._waits:
                self._pause_or_resume()
            return
        except OSError as error:
            self._fail(error)
            return
        if not filled:
            server.end(self)
            return
        self.last_active_s = server.clock.monotonic()
        self._serve(view, filled)

    def look(self) -> None:
        """Receive, though nobody has said that there is something."""
        if not self.is_closed and not self._is_paused:
            self.on_readable()

    def _receive_into_partial(self) -> int:
        """Fill the private buffer up to the frame's end; returns all that it holds, 0 at the end of the stream."""
        partial = self._partial
        assert partial is not None
        if len(partial) > PRIVATE_BUFFER_BYTES_MIN:
            return self._receive_much(partial)
        return self._receive_some(partial)

    def _receive_much(self, partial: bytearray) -> int:
        """Not in a turn that is used up. It is watched anew in the next: libuv tells of a reset once only."""
        turn, monotonic = self._server.line.this_turn, self._server.clock.monotonic
        if turn.is_used_up:
            self._wait_for_turn(in_line=False)
            raise BlockingIOError
        start_s = monotonic()
        try:
            return self._receive_some(partial)
        finally:
            turn.spend(monotonic() - start_s)

    def _receive_some(self, partial: bytearray) -> int:
        if self._filled == len(partial):
            frame_bytes = LENGTH.unpack_from(partial)[0] + LENGTH_BYTES
            if frame_bytes <= self._filled:
                return self._filled  # kept behind a pause that has just ended: serve it before receiving more
            size = _buffer_bytes(frame_bytes, self._filled)
            is_small = size <= PRIVATE_BUFFER_BYTES_MIN
            if not is_small and not self._server.intake.may_grow(self, size - self._filled):
                self._waits |= FOR_ROOM
                raise BlockingIOError
            self._grow(partial)
        received = self.stream.recv_into(memoryview(partial)[self._filled :])
        if not received:
            return 0
        self._server.metrics.bytes_in += received
        self._filled += received
        return self._filled

    def _keep(self, view: memoryview, position: int, filled: int) -> None:
        """Keep what could not be served: the beginning of a frame, or frames behind a pause."""
        rest = filled - position
        if self._partial is not None and position == 0:
            self._filled = filled
            return
        if rest < LENGTH_BYTES:
            size = LENGTH_BYTES
        else:
            frame_bytes = LENGTH.unpack_from(view, position)[0] + LENGTH_BYTES
            size = max(rest, _buffer_bytes(frame_bytes, rest))
            if not self._server.intake.has_room(size):  # as little as a small frame needs
                size = max(rest, min(frame_bytes, PRIVATE_BUFFER_BYTES_MIN))
        partial = bytearray(size)
        partial[:rest] = view[position:filled]
        self._server.intake.end(self)  # of the frame before
        self._hold_partial(partial)
        self._filled = rest

    def _hold_partial(self, partial: bytearray | None) -> None:
        """Keep this buffer instead of the one before, or none."""
        intake = self._server.intake
        if self._partial is not None:
            intake.give_back(len(self._partial))
        if partial is not None:
            intake.take(len(partial))
            intake.receives(self)
        else:
            intake.end(self)
            self._filled = 0
        self._partial = partial

    def _grow(self, partial: bytearray) -> None:
        """Make the buffer larger that a frame has filled: in place, which moves large ones without a copy."""
        frame_bytes = LENGTH.unpack_from(partial)[0] + LENGTH_BYTES
        more = _buffer_bytes(frame_bytes, self._filled) - len(partial)
        partial += bytes(more)
        self._server.intake.take(more)
        self._server.intake.receives(self)

    @property
    def is_of_a_broker(self) -> bool:
        """Whether another broker is at its other end, as far as it says so (KIP-511)."""
        return self.client_software is not None and self.client_software[0] == PEER_SOFTWARE

    @property
    def is_receiving(self) -> bool:
        """Whether it is up to the client that no more comes: also by what it has used of its quotas."""
        if self._waits & MUTED and self._partial is not None:
            return len(self._partial) > PRIVATE_BUFFER_BYTES_MIN
        return not self._is_paused

    def on_room(self) -> None:
        """The intake has room for the rest of a frame."""
        self._waits &= ~FOR_ROOM
        if self._partial is not None:
            self._grow(self._partial)
        self._pause_or_resume()

    def pace(self) -> Pace:
        """For a coroutine that works on a request of this connection."""
        line = self._server.line
        return Pace(self._server.clock, line, line.this_turn.share(FIRST_SLICE_S))

    def lasting(self, frame: memoryview) -> memoryview:
        """The frame where it stays as it is after this turn: a copy, if it lies in the shared buffer."""
        return memoryview(bytearray(frame)) if frame.obj is self._server.receive_view.obj else frame

    # ---- serving ----------------------------------------------------------------------------------------------

    def _serve(self, view: memoryview, filled: int) -> None:
        """Serve the whole frames in the buffer, from `last_active_s` on for a share of the turn."""
        position = 0
        is_private = self._partial is not None
        monotonic = self._server.clock.monotonic
        turn = self._server.line.this_turn
        now_s = self.last_active_s
        share_s = now_s + TURN_SHARE_S
        stop_s = now_s + turn.share(TURN_SHARE_S)
        self._is_in_line = False
        try:
            while filled - position >= LENGTH_BYTES:
                size = LENGTH.unpack_from(view, position)[0]
                if not self.frame_bytes_min <= size <= self.frame_bytes_max:
                    allowed = f"{self.frame_bytes_min} to {self.frame_bytes_max}"
                    raise WireError(f"a frame of {size} bytes (allowed: {allowed})")
                start = position + LENGTH_BYTES
                stop = start + size
                if self._slots and not self._may_overtake(view, start):
                    self._is_in_line = True
                    if self._slots[-1].hurry is not None:
                        self._hurry(self._slots[-1])
                if stop > filled:
                    self._check_partial(view, start, filled, size)
                    break
                if self._is_held_back():
                    break
                self.began_s = now_s
                answer = self.dispatch(self, view[start:stop])
                position = stop
                if type(answer) is bytes and not self._slots:
                    self._out.append(answer)
                    self._held_bytes += len(answer)
                elif answer is not None:
                    self._take(answer)
                if self.is_closed:
                    return
                now_s = monotonic()
                self.durations.observe(now_s - self.began_s)
                if self.meter is not None and self.meter.request is not None:
                    self.meter.end(now_s)
                if now_s >= stop_s and (now_s >= share_s or position < filled):
                    self._wait_for_turn(in_line=now_s >= share_s)
        except WireError as error:
            self._server.refuse(self, bytes(view[position : position + LENGTH_BYTES]), error)
            return
        except InvariantBroken as error:
            self._server.fail(error)
            return
        except Exception:
            log.exception("a request failed; closing the connection of %s:%s", *self.stream.peer[:2])
            self.close("a request failed")
            return
        turn.spend(now_s - self.last_active_s)
        if position < filled:
            self._keep(view, position, filled)
        elif is_private:
            self._hold_partial(None)
        if self._out:
            self._flush()
        if self._is_paused or self._is_held_back():
            self._pause_or_resume()

    def _check_partial(self, view: memoryview, start: int, filled: int, size: int) -> None:
        """Only Produce has frames that large: others are refused before they are received."""
        is_named = filled - start >= len(PRODUCE_KEY)
        if size > DECODED_REQUEST_BYTES_MAX and is_named and view[start : start + 2] != PRODUCE_KEY:
            raise WireError(f"a request of {size} bytes that is no Produce")

    def _wait_for_turn(self, *, in_line: bool) -> None:
        """The next one, or in line where this connection has used up its share of this one."""
        if not self._waits & FOR_TURN:
            self._waits |= FOR_TURN
            (self._server.line.call if in_line else self._server.tasks.call_soon)(self._take_turn)

    def _take_turn(self) -> None:
        self._waits &= ~FOR_TURN
        self._pause_or_resume()

    def _take(self, answer: Answer) -> None:
        if self._slots:
            slot = Slot(self, is_produce=True)
            slot.answer = answer
            slot.is_filled = True
            self._slots.append(slot)
        elif type(answer) is bytes:
            self._out.append(answer)
            self._held_bytes += len(answer)
        else:
            self._push(answer)

    def park(self, *, is_produce: bool = False, held_bytes: int = 0) -> Slot:
        """A slot for the request being dispatched; its handler fills it later. `held_bytes`: of the request, where it
        is kept until then."""
        slot = Slot(self, is_produce, held_bytes)
        slot.durations, slot.began_s = self.durations, self.began_s
        self.durations = UNTIMED  # the slot's, when it is filled
        if held_bytes:
            self._server.intake.take(held_bytes)
        if self._slots is NOTHING:
            self._slots = deque()
        self._slots.append(slot)
        return slot

    def on_slot_filled(self, slot: Slot) -> None:
        if self.is_closed:
            return
        slot.durations.observe(self._server.clock.monotonic() - slot.began_s)
        if slot.held_bytes:
            self._server.intake.give_back(slot.held_bytes)
            slot.held_bytes = 0
        slots = self._slots
        while slots and slots[0].is_filled:
            answer = slots.popleft().answer
            if answer is not None:
                self._push(answer)
        if self._out:
            self._flush()
        if self._is_paused:
            self._pause_or_resume()

    # ---- flow control -----------------------------------------------------------------------------------------

    def _may_overtake(self, view: memoryview, start: int) -> bool:
        """Whether a request may be served though an earlier one is not answered yet: a produce behind produces."""
        is_produce = view[start : start + 2] == PRODUCE_KEY
        return is_produce and all(slot.is_produce for slot in self._slots)

    def _hurry(self, slot: Slot) -> None:
        assert slot.hurry is not None
        self._server.tasks.call_soon(slot.hurry)
        slot.hurry = None

    def _is_held_back(self) -> bool:
        if self._waits:
            return True
        if self._held_bytes <= OUTPUT_BYTES_HELD_MAX and not self._slots and not self._queue:
            return False  # nearly always
        if self._held_bytes > OUTPUT_BYTES_HELD_MAX and self._out:
            self._flush()
        return (
            self._held_bytes > OUTPUT_BYTES_HELD_MAX
            or len(self._queue) > OUTPUT_ITEMS_HELD_MAX
            or (len(self._queue) > 0 and self._server.backlog.is_full)
            or len(self._slots) >= ANSWERS_PARKED_MAX
            or (self._is_in_line and len(self._slots) > 0)
        )

    def mute(self, pause_s: float) -> None:
        """Read nothing more for a while: neither requests nor the end of the stream. Answers still go out."""
        self._muted_until_s = max(self._muted_until_s, self._server.clock.monotonic() + pause_s)
        self._waits |= MUTED
        if self._unmuting is None:
            self._unmuting = self._server.tasks.call_later(pause_s, self._unmute)
        self._pause_or_resume()

    def _unmute(self) -> None:
        left_s = self._muted_until_s - self._server.clock.monotonic()
        if left_s > TIMER_GRAIN_S:  # it was muted again meanwhile
            self._unmuting = self._server.tasks.call_later(left_s, self._unmute)
            return
        self._unmuting = None
        self._waits &= ~MUTED
        self._pause_or_resume()

    def hold(self, size: int) -> None:
        """Bytes are kept on this client's behalf (a request that waits): they count like answers it has not taken."""
        self._held_bytes += size

    def release(self, size: int) -> None:
        self._held_bytes -= size
        if self._is_paused:
            self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        if self.is_closed:
            return
        if self._is_held_back():
            if not self._is_paused:
                self._is_paused = True
                self.stream.unwatch_readable()
        elif self._is_paused:
            self._is_paused = False
            self.stream.watch_readable(self.on_readable)
            if self._partial is not None:  # whole frames may be waiting behind the pause
                self._server.tasks.call_soon(self._serve_kept)

    def _serve_kept(self) -> None:
        if self._partial is not None and not self.is_closed and not self._is_paused:
            self.last_active_s = self._server.clock.monotonic()
            self._serve(memoryview(self._partial), self._filled)

    # ---- end --------------------------------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """It is open, and nothing has ever come."""
        return self.last_active_s is self._since_s and not self.is_closed

    @property
    def is_idle(self) -> bool:
        """Nothing is owed to it: the idle time-out may end it, even where it has stopped taking its answers."""
        return not self._slots

    def _fail(self, error: OSError) -> None:
        """A client that is gone is no news: it has crashed, or ended without a word. A file that cannot be read is."""
        is_gone = isinstance(error, ConnectionError | TimeoutError)
        if is_gone:
            log.debug("%s:%s is gone: %s", *self.stream.peer[:2], error)
        self.close(None if is_gone else str(error))

    def end_malformed(self, error: WireError) -> None:
        """A request has turned out to be one."""
        self._server.end_malformed(self, error)

    def close(self, reason: str | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if reason:
            log.info("closing the connection of %s:%s: %s", *self.stream.peer[:2], reason)
        self.stream.close()
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._hold_partial(None)
        self._server.backlog.set(self, 0)
        self._queue = NOTHING
        self._out.clear()
        for slot in self._slots:
            self._server.intake.give_back(slot.held_bytes)
            if slot.on_cancel is not None:
                slot.on_cancel()
                slot.on_cancel = None
        self._slots = NOTHING
        self._server.on_connection_closed(self)


class SecuredConnection(Connection):
    """Over TLS: what receiving takes counts for the turn, whether a request comes of it or not. How much each decrypts
    in a turn that is used up is the stream's."""

    __slots__ = ()

    def on_readable(self) -> None:
        """All that it takes is spent, beside what was spent in it."""
        turn, monotonic = self._server.line.this_turn, self._server.clock.monotonic
        start_s, used_s = monotonic(), turn.used_s
        super().on_readable()
        turn.spend(max(0.0, monotonic() - start_s - (turn.used_s - used_s)))

    def _receive_much(self, partial: bytearray) -> int:
        return self._receive_some(partial)


def _buffer_bytes(frame_bytes: int, arrived_bytes: int) -> int:
    grown = max(PRIVATE_BUFFER_BYTES_MIN, arrived_bytes * PRIVATE_BUFFER_GROWTH)
    return min(frame_bytes, grown, arrived_bytes + PRIVATE_BUFFER_STEP_BYTES)
