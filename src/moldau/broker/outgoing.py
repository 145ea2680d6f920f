"""The way out of a connection: answers of a turn are sent together, what the client does not take waits in a queue.

Bytes go out with as few calls as can be, file parts by `sendfile`; a client that is slow takes no more of a turn of the
loop than its share, and what waits for it is counted with that of all others (`backlog`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from moldau.base.limits import (
    SENDFILE_BYTES_MAX,
    SENDMSG_BUFFERS_MAX,
    SENDMSG_BYTES_MAX,
    TURN_SHARE_S,
    WRITTEN_IN_A_FULL_TURN_BYTES_MAX,
)
from moldau.broker.slot import Answer, Sending
from moldau.runtime.ports import Buffer, Stream

if TYPE_CHECKING:
    from moldau.broker.server import Server

IN_MEMORY = (bytes, memoryview)
JOINED_BYTES_MAX = 8 * 1024
"""Answers of a turn that are copied into one buffer: cheaper than a call with many."""

NOTHING: deque[Any] = deque()
"""Shared by all connections that have nothing queued: an own deque costs 600 bytes. Never changed."""


class Outgoing:
    """A connection, as far as it sends."""

    __slots__ = (
        "_held_bytes",
        "_is_watching_writable",
        "_out",
        "_out_is_small",
        "_queue",
        "_send",
        "_server",
        "is_closed",
        "last_active_s",
        "stream",
    )

    def __init__(self, server: Server, stream: Stream) -> None:
        self._server = server
        self.stream = stream
        self.last_active_s = server.clock.monotonic()
        self.is_closed = False
        self._send = stream.send
        self._out: list[Any] = []  # answers of the current turn, sent together at its end
        self._out_is_small = True  # no file parts among them
        self._queue: deque[Any] = NOTHING  # what the client has not taken yet
        self._held_bytes = 0
        self._is_watching_writable = False

    def _pause_or_resume(self) -> None:
        """Something has gone out: more requests may be read now."""

    def close(self, reason: str | None) -> None:
        """It ends here."""

    def _fail(self, error: OSError) -> None:
        """Nothing can go out any more."""

    def _push(self, answer: Answer) -> None:
        for item in (answer,) if type(answer) is bytes else answer:
            self._out.append(item)
            if isinstance(item, IN_MEMORY):
                self._held_bytes += len(item)
            else:
                self._out_is_small = False

    def _flush(self) -> None:
        """Send what this turn answered; what the socket does not take waits in the queue."""
        out = self._out
        if self._out_is_small and not self._queue and self._held_bytes <= JOINED_BYTES_MAX:
            data = out[0] if len(out) == 1 else b"".join(out)
            try:
                sent = self._send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._fail(error)
                return
            self._server.metrics.bytes_out += sent
            self._held_bytes -= sent
            out.clear()
            if sent == len(data):
                return
            out.append(data[sent:])
        if self._queue is NOTHING:
            self._queue = deque()
        self._queue.extend(out)
        out.clear()
        self._out_is_small = True
        if not self._is_watching_writable:
            self._write_queue()
        else:
            self._server.backlog.set(self, self._held_bytes)

    def _on_writable(self) -> None:
        self.last_active_s = self._server.clock.monotonic()
        self._write_queue()
        if not self.is_closed:
            self._pause_or_resume()

    def _write_queue(self) -> None:
        """Send from the head of the queue for one turn: until the socket is full, a file part has gone out or the
        share of the turn is used up."""
        queue = self._queue
        turn, monotonic = self._server.line.this_turn, self._server.clock.monotonic
        start_s = now_s = monotonic()
        share_s = turn.share(TURN_SHARE_S)
        try:
            while queue:
                if isinstance(queue[0], IN_MEMORY):
                    is_done = self._write_buffers(
                        SENDMSG_BYTES_MAX if share_s else WRITTEN_IN_A_FULL_TURN_BYTES_MAX
                    )
                else:
                    is_done = self._write_file_part(
                        SENDFILE_BYTES_MAX if share_s else WRITTEN_IN_A_FULL_TURN_BYTES_MAX
                    )
                now_s = monotonic()
                if not is_done or now_s - start_s >= share_s:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail(error)
            return
        turn.spend(now_s - start_s)
        self._server.backlog.set(self, self._held_bytes if queue else 0)
        if self.is_closed:
            return
        if queue and not self._is_watching_writable:
            self._is_watching_writable = True
            self.stream.watch_writable(self._on_writable)
        elif not queue and self._is_watching_writable:
            self._is_watching_writable = False
            self.stream.unwatch_writable()

    def _write_buffers(self, bytes_max: int) -> bool:
        """Send the leading buffers, or some of them, with one call; True when all of these went."""
        queue = self._queue
        buffers: list[Buffer] = []
        total = 0
        for item in queue:
            if not isinstance(item, IN_MEMORY) or len(buffers) == SENDMSG_BUFFERS_MAX or total >= bytes_max:
                break
            piece = item if total + len(item) <= bytes_max else memoryview(item)[: bytes_max - total]
            buffers.append(piece)
            total += len(piece)
        sent = self.stream.sendmsg(buffers)
        self._server.metrics.bytes_out += sent
        self._held_bytes -= sent
        left = sent
        while left:
            head = queue[0]
            if left < len(head):
                queue[0] = memoryview(head)[left:]
                break
            left -= len(head)
            queue.popleft()
        return sent == total

    def _write_file_part(self, bytes_max: int) -> bool:
        """Send a stretch of the file part at the head of the queue; True when it went out whole."""
        queue = self._queue
        part = queue[0]
        if type(part) is not Sending:
            part = queue[0] = Sending(part)
        sent = self.stream.sendfile(part.file, part.position, min(part.left, bytes_max))
        if not sent:
            raise OSError(f"{part.file.path} ends before the answer does")
        self._server.metrics.bytes_out += sent
        part.position += sent
        part.left -= sent
        if part.left:
            return False
        queue.popleft()
        return True
