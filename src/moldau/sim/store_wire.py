"""What the simulated store and its clients say to each other: length-prefixed, pickled tuples over a stream.

A request is `(number, kind, arguments)`, its answer `(number, outcome, value)`; a message with number 0 is the
host's own: `(0, "changed", paths)`. Only for the simulation: nothing here bounds or checks what arrives.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from moldau.runtime.ports import Stream

LENGTH = struct.Struct(">I")
RECEIVE_BYTES = 64 * 1024

DONE = "done"
CONFLICT = "conflict"
SESSION_ENDED = "session ended"


class Talk:
    """One end of a connection; `on_message` gets each message whole, `on_end` is called once when it breaks."""

    def __init__(
        self, stream: Stream, on_message: Callable[[Any], object], on_end: Callable[[], object]
    ) -> None:
        self._stream = stream
        self._on_message = on_message
        self._on_end = on_end
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._buffer = bytearray(RECEIVE_BYTES)
        self.is_closed = False
        stream.watch_readable(self._receive)

    def send(self, message: tuple[Any, ...]) -> None:
        if not self.is_closed:
            data = pickle.dumps(message, protocol=5)
            self._outgoing += LENGTH.pack(len(data)) + data
            self._flush()

    def close(self) -> None:
        """Without a call of `on_end`."""
        if not self.is_closed:
            self.is_closed = True
            self._stream.close()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._stream.send(bytes(self._outgoing))]
            self._stream.unwatch_writable()
        except BlockingIOError:
            self._stream.watch_writable(self._flush)
        except OSError:
            self._broken()

    def _receive(self) -> None:
        try:
            count = self._stream.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._broken()
            return
        self._incoming += self._buffer[:count]
        while not self.is_closed and len(self._incoming) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._incoming)
            end = LENGTH.size + length
            if len(self._incoming) < end:
                return
            message = pickle.loads(bytes(self._incoming[LENGTH.size : end]))
            del self._incoming[:end]
            self._on_message(message)

    def _broken(self) -> None:
        if not self.is_closed:
            self.close()
            self._on_end()
