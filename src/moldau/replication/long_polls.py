"""Long polls of Fetch, parked as data: with their deadlines and what would complete them.

Readers wait for a partition's high watermark, in the `Watchers` of each of their partitions; a follower's session says
when its poll is to be answered (`follower_session`). Growth only notes who has waited long enough; they are answered in
a later turn of the loop, a bounded number in each, so that the producer gets its own answer first. A poll stands in
that queue once, however often its partitions grow meanwhile.

A poll that is done lets go of its request at once. Nothing here may go round in a circle, which only the garbage
collector would find: it hardly ever looks at what has waited for a while (`tune_gc`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from moldau.base.limits import WAKEUPS_PER_TURN
from moldau.replication.deadlines import Deadlines
from moldau.runtime.ports import Clock, Tasks

DEAD_PASSED_PER_TURN = 1024
"""Polls whose clients are gone by the time it is their turn: passing over one costs next to nothing."""


class LongPoll:
    """A fetch that waits for `missing_bytes` more in its partitions, or for its deadline."""

    __slots__ = ("complete", "deadline_s", "has_news", "is_woken", "missing_bytes", "places")

    def __init__(
        self,
        complete: Callable[[LongPoll], None],
        deadline_s: float,
        missing_bytes: int,
        places: Sequence[Watchers],
    ) -> None:
        self.complete: Callable[[LongPoll], None] | None = complete
        """None when it is done: its deadline may stay here for a while, but not what the fetch has read."""
        self.deadline_s = deadline_s
        self.missing_bytes = missing_bytes
        self.places = places
        """Where it is watched for, in each of its partitions."""
        self.has_news = False
        """A partition has grown or changed since it was parked: what was read then is no longer the answer."""
        self.is_woken = False
        """It stands in the queue of those to be answered."""

    @property
    def is_done(self) -> bool:
        return self.complete is None


Watchers: TypeAlias = dict[LongPoll, None]
"""Who waits for a partition's high watermark, in the order in which they came."""


class LongPolls:
    def __init__(self, tasks: Tasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._deadlines = Deadlines[LongPoll](tasks, clock, self._complete)
        self._woken: deque[LongPoll] = deque()
        self._is_waking = False

    @property
    def count(self) -> int:
        return self._deadlines.living

    def park(self, poll: LongPoll) -> None:
        for watchers in poll.places:
            watchers[poll] = None
        self._deadlines.add(poll)

    def cancel(self, poll: LongPoll) -> None:
        """Its client is gone."""
        self._finish(poll)

    def hurry(self, poll: LongPoll) -> None:
        """Its client has more to ask: answer with what there is."""
        self._complete(poll)

    def wake(self, poll: LongPoll) -> None:
        """It has waited long enough: answer it in a later turn."""
        if not poll.is_woken:
            poll.is_woken = True
            self._woken.append(poll)
            self._schedule_wake()

    def hasten(self, poll: LongPoll, delay_s: float) -> None:
        """It has waited long enough when so much time has passed."""
        deadline_s = self._clock.monotonic() + delay_s
        if deadline_s < poll.deadline_s:
            self._deadlines.hasten(poll, deadline_s)

    def on_growth(self, watchers: Watchers, added_bytes: int) -> None:
        """There is more to read: note who has waited long enough, answer them in a later turn."""
        for poll in watchers:
            poll.has_news = True
            poll.missing_bytes -= added_bytes
            if poll.missing_bytes <= 0 and not poll.is_woken:
                poll.is_woken = True
                self._woken.append(poll)
        self._schedule_wake()

    def on_change(self, watchers: Watchers) -> None:
        """A partition went away or changed its leader: whoever waits on it must look again."""
        for poll in watchers:
            poll.has_news = True
            if not poll.is_woken:
                poll.is_woken = True
                self._woken.append(poll)
        self._schedule_wake()

    def close(self) -> None:
        self._deadlines.close()
        self._woken.clear()

    def _schedule_wake(self) -> None:
        if self._woken and not self._is_waking:
            self._is_waking = True
            self._tasks.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        woken = self._woken
        answered = 0
        for _ in range(min(DEAD_PASSED_PER_TURN, len(woken))):
            poll = woken.popleft()
            if not poll.is_done:
                self._complete(poll)
                answered += 1
                if answered == WAKEUPS_PER_TURN:
                    break
        self._schedule_wake()

    def _complete(self, poll: LongPoll) -> None:
        complete = poll.complete
        if complete is not None:
            self._finish(poll)
            complete(poll)

    def _finish(self, poll: LongPoll) -> None:
        if poll.complete is None:
            return
        poll.complete = None
        self._deadlines.note_done()
        for watchers in poll.places:
            watchers.pop(poll, None)
