"""Which bytes of a segment this process has seen to be sound.

Batches are checked when they are appended, and what was on the disk before when it is first read, off the loop: so
no reader is given a batch whose checksum nobody has looked at, and no byte is checked at every fetch. Readers' own
checks are not enough: not every client makes them.

What is forgotten is only checked again, so a few stretches are remembered of each segment, and only while it is
one of those that were read lately.
"""

from __future__ import annotations

from collections.abc import Sequence

STRETCHES_MAX = 8


class Checked:
    __slots__ = ("_bad", "_stretches", "above")

    def __init__(self, above: int) -> None:
        self.above = above
        """From this position on, everything was checked when it was appended."""
        self._stretches: Sequence[tuple[int, int]] = ()
        """Start and stop, the newest last."""
        self._bad: dict[int, str] = {}

    def end_from(self, position: int, stop: int) -> int:
        """How far the bytes from a position on are known to be sound, at most up to `stop`."""
        reached = position
        for start, end in sorted(self._stretches):
            if start <= reached < end:
                reached = end
        return stop if reached >= self.above else min(reached, stop)

    def bad_at(self, position: int) -> str | None:
        """What is wrong with the batch at a position, where it is known to be damaged."""
        return self._bad.get(position)

    def add(self, start: int, stop: int) -> None:
        """The batches in [start, stop) are sound."""
        kept = []
        for other_start, other_stop in self._stretches:
            if other_start <= stop and start <= other_stop:
                start, stop = min(start, other_start), max(stop, other_stop)
            else:
                kept.append((other_start, other_stop))
        if stop >= self.above:
            self.above = min(self.above, start)
        else:
            kept.append((start, stop))
        self._stretches = kept[-STRETCHES_MAX:]

    def add_bad(self, position: int, what: str) -> None:
        """The batch at a position is damaged."""
        self._bad[position] = what
        if len(self._bad) > STRETCHES_MAX:
            del self._bad[next(iter(self._bad))]

    def cut(self, size: int) -> None:
        """The segment ends here from now on; what is appended is checked."""
        self.above = min(self.above, size)
        self._stretches = [(start, min(stop, size)) for start, stop in self._stretches if start < size]
        self._bad = {position: what for position, what in self._bad.items() if position < size}
