"""Which bytes of a segment this process has seen to be sound.

Batches are checked when they are appended, and what was on the disk before when it is first read: what is little, on
the loop (`ChecksPerTurn`), else in a thread. So no reader is given a batch whose checksum nobody has looked at, and no
byte is checked at every fetch. Readers' own checks are not enough: not every client makes them.

What is forgotten is only checked again, so a bounded number of stretches is remembered of each segment, and only while
it is one of those that were read lately.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from moldau.base.limits import (
    CHECKED_BATCHES_PER_TURN,
    CHECKED_BYTES_PER_TURN,
    CHECKED_INLINE_BYTES_MAX,
    CHECKED_STRETCHES_MAX,
)
from moldau.runtime.ports import Tasks

BAD_MAX = 8


class Checked:
    __slots__ = ("_bad", "_starts", "_stops", "above")

    def __init__(self, above: int) -> None:
        self.above = above
        """From this position on, everything was checked when it was appended."""
        self._starts = array("q")
        self._stops = array("q")
        """Of stretches below `above`, in order; between two of them something is not checked."""
        self._bad: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def end_from(self, position: int, stop: int) -> int:
        """How far the bytes from a position on are known to be sound, at most up to `stop`."""
        at = bisect_right(self._starts, position) - 1
        reached = max(position, self._stops[at]) if at >= 0 else position
        return stop if reached >= self.above else min(reached, stop)

    def bad_at(self, position: int) -> str | None:
        """What is wrong with the batch at a position, where it is known to be damaged."""
        return self._bad.get(position)

    def add(self, start: int, stop: int) -> None:
        """The batches in [start, stop) are sound."""
        starts, stops = self._starts, self._stops
        first, last = bisect_left(stops, start), bisect_right(starts, stop)  # those that it touches
        if first < last:
            start, stop = min(start, starts[first]), max(stop, stops[last - 1])
        if stop >= self.above:
            self.above = min(self.above, start)
            del starts[first:], stops[first:]
            return
        starts[first:last], stops[first:last] = array("q", (start,)), array("q", (stop,))
        if len(starts) > CHECKED_STRETCHES_MAX:
            furthest = 0 if start - starts[0] > starts[-1] - start else -1
            del starts[furthest], stops[furthest]

    def add_bad(self, position: int, what: str) -> None:
        """The batch at a position is damaged."""
        self._bad[position] = what
        if len(self._bad) > BAD_MAX:
            del self._bad[next(iter(self._bad))]

    def cut(self, size: int) -> None:
        """The segment ends here from now on; what is appended is checked."""
        self.above = min(self.above, size)
        kept = bisect_left(self._starts, size)
        del self._starts[kept:], self._stops[kept:]
        if kept:
            self._stops[-1] = min(self._stops[-1], size)
        self._bad = {position: what for position, what in self._bad.items() if position < size}


class ChecksPerTurn:
    """What all readers of a broker together may have checked in one turn of the loop; the rest is for threads."""

    __slots__ = ("_batches_left", "_bytes_left", "_is_noticed", "_tasks")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._is_noticed = False
        self._bytes_left = CHECKED_BYTES_PER_TURN
        self._batches_left = CHECKED_BATCHES_PER_TURN

    def allowed(self, length: int) -> int:
        """How many batches in so many bytes may be checked now."""
        if length > CHECKED_INLINE_BYTES_MAX or length > self._bytes_left:
            return 0
        return self._batches_left

    def spend(self, length: int, batches: int) -> None:
        self._bytes_left -= length
        self._batches_left -= batches
        if not self._is_noticed:
            self._is_noticed = True
            self._tasks.call_soon(self._end)

    def _end(self) -> None:
        self._is_noticed = False
        self._bytes_left, self._batches_left = CHECKED_BYTES_PER_TURN, CHECKED_BATCHES_PER_TURN
