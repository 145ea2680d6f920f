"""One connection to a broker: pipelined requests out, answers matched to them in order.

Guarantees:
- Every request ends in its answer or in an exception of `peers.errors`. One that is not answered in time ends the
  connection, since answers come in order; so do answers that nobody waits for, of the wrong id, or malformed ones.
- What is held is bounded (`base.limits`, PEER_*): requests in flight, bytes that the peer has not taken, the answer
  being received. Past the bounds `send` refuses and `ask` waits. A length is checked before anything is allocated.
- A large answer is received into one buffer of its own, without copies but for its first bytes; `ask_raw` gives that
  buffer as it is. Who gives it back (`give_back`) spares the next answer the page faults of a new one, which cost as
  much as receiving; who forgets to loses only that.
- An answered request leaves nothing behind that refers to itself in a circle (see `broker.parked`).

It leaves out connecting again, and which version to speak (`peers.peer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from moldau.base.limits import (
    PEER_ANSWER_BYTES_MAX,
    PEER_BYTES_QUEUED_MAX,
    PEER_CALLERS_WAITING_MAX,
    PEER_FRAME_BYTES_AT_ONCE,
    PEER_RECEIVE_BYTES,
    PEER_REQUESTS_IN_FLIGHT_MAX,
    PRIVATE_BUFFER_GROWTH,
    SENDMSG_BUFFERS_MAX,
)
from moldau.peers.errors import BadAnswer, Busy, Disconnected, TimedOut
from moldau.runtime.ports import Buffer, Runtime, Stream, Timer
from moldau.wire.apis import APIS
from moldau.wire.codec import decode_response, encode_request
from moldau.wire.frames import SIZE, SIZE_BYTES, WireError, parse_response_header, request_frame

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
"""Kafka's `request.timeout.ms`."""
TIMER_GRAIN_S = 0.001
"""Event loops call back up to a millisecond too early."""
RECEIVES_PER_TURN_MAX = 16
"""A peer that sends faster than this side receives does not keep the loop from the others."""
SPARE_TIMES_MAX = 4
SPARE_UNUSED_MAX = 8
"""A buffer that was given back is kept for answers of at least a quarter of its size, and let go after so many small
ones in a row: a follower that has caught up holds nothing."""
ANSWER_BYTES_MIN = 4  # the correlation id
NO_TIMER_S = float("inf")
CORRELATION_ID_MAX = 2**31 - 1

Closed = Callable[["PeerConnection", Disconnected], object]


class _Awaited(NamedTuple):
    """A request that was sent, and is not answered yet."""

    api_key: int
    version: int
    correlation_id: int
    deadline_s: float
    is_raw: bool
    answer: asyncio.Future[Any]


class PeerConnection:
    __slots__ = (
        "_awaited",
        "_called",
        "_callers",
        "_client_id",
        "_clock",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_frame_bytes_max",
        "_is_watching_writable",
        "_next_id",
        "_queue",
        "_queued_bytes",
        "_spare",
        "_spare_unused",
        "_stream",
        "_tasks",
        "_timeout_s",
        "_timer",
        "_timer_s",
        "ignores_strays",
        "is_closed",
        "on_closed",
    )

    def __init__(
        self,
        runtime: Runtime,
        stream: Stream,
        client_id: str | None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        frame_bytes_max: int = PEER_ANSWER_BYTES_MAX,
        on_closed: Closed | None = None,
    ) -> None:
        self.is_closed = False
        self.ignores_strays = False
        """Whether answers that nobody waits for are let pass: who sends nonsense may get anything."""
        self.on_closed = on_closed
        """Called once, whoever closed it, with what all requests in flight end in."""
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._stream = stream
        self._client_id = client_id
        self._timeout_s = timeout_s  # of requests that have none of their own
        self._frame_bytes_max = frame_bytes_max
        self._awaited: deque[_Awaited] = deque()
        self._callers: deque[asyncio.Future[None]] = deque()  # who wait for room
        self._called = 0  # who have been given it, and will send within this turn of the loop
        self._next_id = 1
        self._queue: deque[Buffer] = deque()  # what the peer has not taken yet
        self._queued_bytes = 0
        self._is_watching_writable = False
        self._frame: memoryview | None = None  # an answer of which the first `_filled` bytes are there
        self._frame_bytes = 0  # how long it will be; 0 while its length is not there
        self._filled = 0
        self._spare: bytearray | None = None  # given back
        self._spare_unused = 0  # answers since one needed it
        self._timer: Timer | None = None
        self._timer_s = NO_TIMER_S
        stream.watch_readable(self._on_readable)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        host: str,
        port: int,
        client_id: str | None,
        *,
        timeout_s: float = CONNECT_TIMEOUT_S,
        frame_bytes_max: int = PEER_ANSWER_BYTES_MAX,
    ) -> PeerConnection:
        """Connect. OSError as the Net port says."""
        stream = await runtime.net.connect(host, port, timeout_s=timeout_s)
        return cls(runtime, stream, client_id, frame_bytes_max=frame_bytes_max)

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._awaited)

    @property
    def has_room(self) -> bool:
        in_flight = len(self._awaited) + self._called
        return in_flight < PEER_REQUESTS_IN_FLIGHT_MAX and self._queued_bytes < PEER_BYTES_QUEUED_MAX

    def send(
        self, api_key: int, version: int, message: object, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Send a request now; its answer, or what it ended in, comes in the future. Nobody need wait for it."""
        return self._send_now(api_key, version, encode_request(api_key, version, message), timeout_s, False)

    def send_raw(
        self, api_key: int, version: int, body: bytes, timeout_s: float | None = None
    ) -> asyncio.Future[memoryview]:
        """Like `send`, of a body that is coded already; the answer is its body as it was received."""
        return self._send_now(api_key, version, body, timeout_s, True)

    async def ask(self, api_key: int, version: int, message: object, timeout_s: float | None = None) -> Any:
        """The answer to a request. Waits for room to send it, which counts as part of the time."""
        body = encode_request(api_key, version, message)
        if self._callers or not self.has_room:
            timeout_s = await self._room(timeout_s)
        return await self._request(api_key, version, body, timeout_s, False)

    async def ask_raw(
        self, api_key: int, version: int, body: bytes, timeout_s: float | None = None
    ) -> memoryview:
        """Like `ask`, of a body that is coded already; the answer is its body as it was received."""
        if self._callers or not self.has_room:
            timeout_s = await self._room(timeout_s)
        answer: memoryview = await self._request(api_key, version, body, timeout_s, True)
        return answer

    def give_back(self, answer: memoryview) -> None:
        """The caller of `ask_raw` is done with an answer, and has no other view of it: the next may use its buffer."""
        buffer = answer.obj
        answer.release()
        if isinstance(buffer, bytearray) and len(buffer) > PEER_RECEIVE_BYTES:
            try:
                buffer.append(buffer.pop())
            except BufferError:  # there is a view of it after all
                return
            if not self.is_closed and len(buffer) <= PEER_FRAME_BYTES_AT_ONCE:
                self._spare = buffer

    def send_only(self, api_key: int, version: int, message: object) -> None:
        """Send a request that gets no answer (acks=0). Busy where there is no room."""
        body = encode_request(api_key, version, message)
        self.send_bytes(request_frame(api_key, version, self._take_id(), self._client_id, body))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be a request, for those who try how a broker takes them. Busy as above."""
        if not self.is_closed:
            if not self.has_room:
                raise Busy("the peer does not take its requests")
            self._put(data)

    def close(self, reason: str = "the connection was closed") -> None:
        self._end(Disconnected, reason)

    def _send_now(
        self, api_key: int, version: int, body: bytes, timeout_s: float | None, is_raw: bool
    ) -> asyncio.Future[Any]:
        if self.has_room:
            return self._request(api_key, version, body, timeout_s, is_raw)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _fail(answer, Busy("the peer does not take or answer its requests"))
        return answer

    def _request(
        self, api_key: int, version: int, body: bytes, timeout_s: float | None, is_raw: bool
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            _fail(answer, Disconnected("the connection was closed"))
            return answer
        correlation_id = self._take_id()
        deadline_s = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        self._awaited.append(_Awaited(api_key, version, correlation_id, deadline_s, is_raw, answer))
        if deadline_s < self._timer_s:
            self._set_timer(deadline_s)
        self._put(request_frame(api_key, version, correlation_id, self._client_id, body))
        return answer

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id = taken + 1 if taken < CORRELATION_ID_MAX else 1
        return taken

    async def _room(self, timeout_s: float | None) -> float:
        """Wait in line until there is room, or the connection ends; returns what is left of the time."""
        if len(self._callers) >= PEER_CALLERS_WAITING_MAX:
            raise Busy("too many wait for the peer already")
        if timeout_s is None:
            timeout_s = self._timeout_s
        begun_s = self._clock.monotonic()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers.append(turn)
        timer = self._tasks.call_later(timeout_s, _fail, turn, Busy("the peer had no room in time"))
        try:
            await turn
        except BaseException:
            was_called = turn.done() and not turn.cancelled() and turn.exception() is None
            if was_called:  # and cancelled before it could send
                self._called -= 1
                self._call_waiting()
            elif turn in self._callers:
                self._callers.remove(turn)
            raise
        finally:
            timer.cancel()
            del turn
        self._called -= 1
        return timeout_s - (self._clock.monotonic() - begun_s)

    def _call_waiting(self) -> None:
        """Call those who wait for room, in their order, as many as there is room for."""
        while self._callers and self.has_room:
            turn = self._callers.popleft()
            if not turn.done():  # by being cancelled, or too late
                self._called += 1
                turn.set_result(None)

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        delay_s = max(0.0, deadline_s - self._clock.monotonic()) + TIMER_GRAIN_S
        self._timer = self._tasks.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        """One timer serves all: it is for the earliest deadline that there was when it was set."""
        self._timer = None
        self._timer_s = NO_TIMER_S
        first = min(self._awaited, key=_deadline_of, default=None)
        if first is None:
            return
        if first.deadline_s > self._clock.monotonic():
            self._set_timer(first.deadline_s)
            return
        api = APIS.get(first.api_key)
        self._end(TimedOut, f"{api.name if api else first.api_key} was not answered in time")

    def _put(self, data: bytes) -> None:
        try:
            sent = 0 if self._queue else self._stream.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._end(Disconnected, str(error))
            return
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:] if sent else data)
            self._queued_bytes += len(data) - sent
            if not self._is_watching_writable:
                self._is_watching_writable = True
                self._stream.watch_writable(self._on_writable)

    def _on_writable(self) -> None:
        queue = self._queue
        try:
            buffers = [buffer for buffer, _ in zip(queue, range(SENDMSG_BUFFERS_MAX), strict=False)]
            sent = self._stream.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(Disconnected, str(error))
            return
        self._queued_bytes -= sent
        while sent:
            head = queue[0]
            if sent < len(head):
                queue[0] = memoryview(head)[sent:]
                break
            sent -= len(head)
            queue.popleft()
        if not queue:
            self._is_watching_writable = False
            self._stream.unwatch_writable()
        self._call_waiting()

    def _on_readable(self) -> None:
        """Receive until nothing is expected, or nothing is there: libuv tells only once of a reset that comes together
        with data. One that is missed while nobody waits is found by the next request."""
        try:
            for _ in range(RECEIVES_PER_TURN_MAX):
                was_large = self._frame_bytes > 0
                if not (self._receive_into_frame() if was_large else self._receive_frames()):
                    self._end(Disconnected, "the peer closed the connection")
                if not self._awaited and self._frame is None:  # or it is closed
                    break
                if (
                    was_large and not self._frame_bytes
                ):  # its buffer may be given back before the next is needed
                    self._tasks.call_soon(self._read_on)
                    break
            else:
                self._tasks.call_soon(self._read_on)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end(Disconnected, str(error))
        except WireError as error:
            self._end(BadAnswer, str(error))
        if self._callers:
            self._call_waiting()

    def _read_on(self) -> None:
        if not self.is_closed:
            self._on_readable()

    def _receive_frames(self) -> int:
        """Receive where no length is known: whole answers are handed out where they lie, of the last one it may be the
        beginning."""
        view = memoryview(bytearray(PEER_RECEIVE_BYTES))
        filled = self._filled
        if filled:
            assert self._frame is not None
            view[:filled] = self._frame[:filled]
        received = self._stream.recv_into(view[filled:] if filled else view)
        filled += received
        position = 0
        while filled - position >= SIZE_BYTES:
            start = position + SIZE_BYTES
            size: int = SIZE.unpack_from(view, position)[0]
            if not ANSWER_BYTES_MIN <= size <= self._frame_bytes_max:
                raise WireError(f"an answer of {size} bytes (allowed: 4 to {self._frame_bytes_max})")
            if start + size > filled:
                self._begin_frame(size, view[start:filled])
                return received
            self._on_frame(view[start : start + size])
            if self.is_closed:
                return received
            self._spare_unused += 1
            position = start + size
        if self._spare_unused > SPARE_UNUSED_MAX:
            self._spare = None
        self._filled = filled - position
        self._frame = view[position:filled] if self._filled else None
        return received

    def _begin_frame(self, size: int, beginning: memoryview) -> None:
        buffer = self._spare
        if buffer is None or len(buffer) > size * SPARE_TIMES_MAX:
            self._spare_unused += 1
            buffer = bytearray(min(size, PEER_FRAME_BYTES_AT_ONCE))
        else:
            self._spare, self._spare_unused = None, 0
            if len(buffer) < size:
                buffer = bytearray(min(size, PEER_FRAME_BYTES_AT_ONCE))
        self._frame_bytes = size
        self._frame = memoryview(buffer)[:size]
        self._filled = len(beginning)
        self._frame[: self._filled] = beginning

    def _receive_into_frame(self) -> int:
        frame = self._frame
        assert frame is not None
        if self._filled == len(frame):
            grown = memoryview(bytearray(min(self._frame_bytes, len(frame) * PRIVATE_BUFFER_GROWTH)))
            grown[: self._filled] = frame
            frame = self._frame = grown
        received = self._stream.recv_into(frame[self._filled :])
        self._filled += received
        if self._filled == self._frame_bytes:
            self._frame = None
            self._frame_bytes = self._filled = 0
            self._on_frame(frame)
        return received

    def _on_frame(self, frame: memoryview) -> None:
        if not self._awaited:
            if self.ignores_strays:
                return
            raise WireError("an answer that nobody waits for")
        api_key, version, wanted_id, _, is_raw, answer = self._awaited[0]
        correlation_id, position = parse_response_header(frame, api_key, version)
        if correlation_id != wanted_id:
            raise WireError(f"an answer to request {correlation_id} where {wanted_id} is due")
        if answer.done():  # nobody waits for it any more
            self._awaited.popleft()
            return
        if is_raw:
            result: object = frame[position:]
        else:
            result = decode_response(api_key, version, frame, position)
        self._awaited.popleft()
        answer.set_result(result)

    def _end(self, kind: type[Disconnected], reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._frame = self._spare = None
        self._frame_bytes = self._filled = 0
        self._queue.clear()
        self._queued_bytes = 0
        awaited, self._awaited = self._awaited, deque()
        for one in awaited:
            _fail(one.answer, kind(reason))
        callers, self._callers = self._callers, deque()
        for turn in callers:
            _fail(turn, kind(reason))
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed(self, kind(reason))


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: an answer that nobody waits for any more is no failure


def _deadline_of(awaited: _Awaited) -> float:
    return awaited.deadline_s
