"""The steps of TLS handshakes that are due, and their places in threads.

A step computes in a thread, which does not hold the interpreter: a signature takes a millisecond, with a large key six.
STEPS_AT_ONCE at a time, in the order in which clients have spoken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.runtime.real.tls_turn import Turn

if TYPE_CHECKING:
    from moldau.runtime.real.tls import RealTlsStream

STEPS_AT_ONCE = 2


class Next(Enum):
    """What a handshake needs next."""

    NOTHING = 1
    READ = 2
    DONE = 3


Step = tuple[Next, OSError | None]


class Handshakes:
    """The steps that are due, over all streams of a process's loop: STEPS_AT_ONCE in threads, the others in line."""

    __slots__ = ("_in_thread", "_ready", "_running", "turn")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, in_thread: Callable[..., asyncio.Future[Any]]
    ) -> None:
        self.turn = Turn(loop)
        self._in_thread = in_thread
        self._ready: deque[RealTlsStream] = deque()
        self._running = 0

    def submit(self, stream: RealTlsStream) -> None:
        self._ready.append(stream)
        self._next()

    def _next(self) -> None:
        while self._ready and self._running < STEPS_AT_ONCE:
            stream = self._ready.popleft()
            if stream.begin_step():
                self._running += 1
                self._in_thread(stream.step).add_done_callback(partial(self._stepped, stream))

    def _stepped(self, stream: RealTlsStream, step: asyncio.Future[Step]) -> None:
        self._running -= 1
        if step.cancelled():
            stream.close()
        else:
            stream.after_step(*step.result())
        self._next()
