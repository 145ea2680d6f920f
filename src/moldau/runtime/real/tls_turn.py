"""What all TLS streams of a loop do in one turn of it, so that thousands do not hold it up together.

All that is deferred comes up in the next turn by itself: sockets are readable still, or the stream calls its reader.
"""

from __future__ import annotations

import asyncio

LOOKS_PER_TURN = 64
"""Handshakes that are received from in one turn: thousands may begin at the same time."""
RECORDS_MAX = 64
"""Decrypted by one stream: some 0.3 ms. Small records take as long as larger ones."""
DECRYPTING_S_MAX = 0.005
RECORDS_IN_A_FULL_TURN = 4
"""By all streams together, a change of keys takes three times as long as bytes; and by each when that is used up."""


class Turn:
    """Counts, from one turn to the next."""

    __slots__ = ("_is_begun", "_looks", "_loop", "_used_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_begun = False
        self._looks = 0
        self._used_s = 0.0

    def may_look(self) -> bool:
        """Whether another handshake may be received from."""
        self._begin()
        self._looks += 1
        return self._looks <= LOOKS_PER_TURN

    def records_max(self) -> int:
        """How many records a stream may decrypt now."""
        return RECORDS_MAX if self._used_s < DECRYPTING_S_MAX else RECORDS_IN_A_FULL_TURN

    def spend(self, time_s: float) -> None:
        self._begin()
        self._used_s += time_s

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._is_begun = False
        self._looks = 0
        self._used_s = 0.0
