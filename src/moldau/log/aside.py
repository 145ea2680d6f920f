"""What a broker's logs compute off the loop: looking at large batches, for appends and for look-ups by time.

Work is done in threads, a few pieces at a time (`ASIDE_BATCHES_MAX`), each within `bounds.ASIDE`. What is beyond them
is done again, alone, within `bounds.HEAVY`: all batches that may take 100 MB go one after the other. The rest waits,
in turns of those who ask: many large batches of one client do not keep another's waiting for more than one of them
each. How many wait is bounded by those who ask: a connection has `ANSWERS_PARKED_MAX` requests under way.

One `Aside` serves all logs of a broker, so that its bounds are the broker's, as is that of what is checked on the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from moldau.base.limits import ASIDE_BATCHES_MAX, HEAVY_BATCHES_MAX
from moldau.log.checked import ChecksPerTurn
from moldau.log.marks import RememberedMarks
from moldau.records.bounds import ASIDE, HEAVY, Bounds, TooMuch
from moldau.runtime.ports import Tasks

T = TypeVar("T")


class Aside:
    __slots__ = ("_heavy", "_ordinary", "_tasks", "checks", "marks")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._ordinary = Lane(ASIDE_BATCHES_MAX)
        self._heavy = Lane(HEAVY_BATCHES_MAX)
        self.marks = RememberedMarks()
        self.checks = ChecksPerTurn(tasks)

    async def run(self, who: Hashable, work: Callable[[Bounds], T | TooMuch]) -> T:
        """What the work gives back, done in a thread: within ordinary bounds, or else within those of the largest."""
        for lane, bounds in ((self._ordinary, ASIDE), (self._heavy, HEAVY)):
            await lane.enter(who)
            # Who is cancelled does not wait on, but the thread has its place until it is done.
            under_way = asyncio.ensure_future(self._tasks.in_thread(work, bounds))
            under_way.add_done_callback(lane.left)
            done = await asyncio.shield(under_way)
            if not isinstance(done, TooMuch):
                return done
        raise AssertionError("there is nothing beyond the bounds of the largest")


class Lane:
    """So many at a time; the next place goes to the one who asked least lately."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    async def enter(self, who: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was given the place just then
                self.left()
            raise

    def left(self, _: object = None) -> None:
        while self._waiting:
            who = next(iter(self._waiting))
            line = self._waiting.pop(who)
            place = line.popleft()
            if line:
                self._waiting[who] = line  # behind the others
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1
