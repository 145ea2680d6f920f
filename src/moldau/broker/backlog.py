"""How much of answers is in memory at once, over all connections: packed, and not taken by their clients yet.

A client that does not read is held back at a bound of its own (`connection`). What all of them leave behind has two
more: past BACKLOG_BYTES_HELD, who has not taken what it was given is served nothing more; past BACKLOG_BYTES_MAX, the
connection with the largest part of it is closed.
"""

from __future__ import annotations

from typing import Protocol

from moldau.base.limits import BACKLOG_BYTES_HELD, BACKLOG_BYTES_MAX


class Reader(Protocol):
    """A connection with answers that its client has not taken."""

    def close(self, reason: str | None) -> None: ...


class Backlog:
    def __init__(self) -> None:
        self.bytes_held = 0
        self._of: dict[Reader, int] = {}

    @property
    def is_full(self) -> bool:
        return self.bytes_held > BACKLOG_BYTES_HELD

    def set(self, reader: Reader, size: int) -> None:
        """So much is left of this one's answers."""
        self.bytes_held += size - self._of.pop(reader, 0)
        if size:
            self._of[reader] = size
        while self.bytes_held > BACKLOG_BYTES_MAX and len(self._of) > 1:
            largest = max(self._of, key=self._of.__getitem__)
            largest.close("it does not take its answers, and there is no more room for them")
            self.bytes_held -= self._of.pop(largest, 0)
