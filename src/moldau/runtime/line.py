"""Long work stands in line: in each turn of the loop one piece of it gets one slice, and others are served between.

One loop serves everyone, so nothing may hold it for long. What may take long is a generator (`Slices`) that yields
where it can pause. `Line.put` runs it slice by slice, in turn with what else is in line. A coroutine awaits
`Pace.breathe` where it could pause. `call` is for whoever goes on later (a connection that has used up its share).

Guarantees:
- One turn of the loop runs one slice, of about `SLICE_S`: a small request waits for that, and not for the whole.
- Who is in line gets its slices in the order of arrival, one after the other. At most `UNDER_WAY_MAX` pieces of work
  are under way at once, since each holds what it has made so far; further ones begin when one has ended.
- What connections are served beside, without standing in line, is bounded for each turn, too (`Turn`).
- Work that raises ends alone: who puts it in line catches what it may raise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from moldau.base.limits import TURN_S
from moldau.runtime.ports import Clock, Tasks

T = TypeVar("T")

Slices: TypeAlias = Generator[None, None, T]
"""Work that yields where it can pause, and returns what it has come to."""

NoteStep: TypeAlias = Callable[[float, float], object]
"""Told when a step began and ended."""

SLICE_S = 0.004
"""Long against the 0.1 ms that a turn of the loop costs by itself, short against what a client notices."""

NOTICED_S = TURN_S / 8
"""From when on a turn's end is waited for."""

UNDER_WAY_MAX = 2
"""Pieces of work that are under way at once: what each of them holds in memory adds up."""


def whole(work: Slices[T]) -> T:
    """What work comes to, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def at_once(clock: Clock, work: Slices[T], slice_s: float) -> T | None:
    """What work comes to, if one slice is enough; else None, and the work is given up."""
    stop_s = clock.monotonic() + slice_s
    try:
        next(work)
        while clock.monotonic() < stop_s:
            next(work)
    except StopIteration as end:
        value: T = end.value
        return value
    return None


class Breathing(Protocol):
    async def breathe(self) -> None:
        """Let others run where the slice is used up."""
        ...


async def in_line(pace: Breathing, work: Slices[T]) -> T:
    """What work comes to, with others between its slices."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value
        await pace.breathe()


class Turn:
    """What connections have used of the current turn of the loop, which they share.

    Little is not noticed: it may add up over several turns, and a turn's end costs nothing then.
    """

    __slots__ = ("_is_noticed", "_tasks", "used_s")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._is_noticed = False
        self.used_s = 0.0

    def spend(self, time_s: float) -> None:
        self.used_s += time_s
        if self.used_s > NOTICED_S and not self._is_noticed:
            self._is_noticed = True
            self._tasks.call_soon(self._end)

    @property
    def is_used_up(self) -> bool:
        return self.used_s >= TURN_S

    def share(self, most_s: float) -> float:
        """How long one of those who want to be served may take: nothing is left of a turn that is used up."""
        return most_s if self.used_s < TURN_S else 0.0

    def _end(self) -> None:
        self._is_noticed = False
        self.used_s = 0.0


class Line:
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self.clock = clock
        self._tasks = tasks
        self._queue: deque[Slices[None]] = deque()
        self._waiting: deque[Slices[None]] = deque()  # not begun yet
        self._under_way = 0
        self._is_running = False
        self.this_turn = Turn(tasks)
        self.slices = 0
        """How many were run so far."""

    def __len__(self) -> int:
        return len(self._queue) + len(self._waiting)

    def put(self, work: Slices[None], *, is_urgent: bool = False) -> None:
        """Run it to its end, in slices. What is urgent begins before all that has not begun yet."""
        if self._under_way < UNDER_WAY_MAX:
            self._begin(work)
        elif is_urgent:
            self._waiting.appendleft(work)
        else:
            self._waiting.append(work)

    def call(self, callback: Callable[[], object]) -> None:
        """Call it once, when all that is in line now has had a slice."""
        self._append(_once(callback))

    async def turn(self) -> None:
        """Wait until all that is in line now has had a slice."""
        turn = asyncio.get_running_loop().create_future()
        self.call(lambda: None if turn.done() else turn.set_result(None))
        await turn

    async def sharing_turns(self, work: Coroutine[Any, Any, T], note: NoteStep | None = None) -> T:
        """What a coroutine comes to. Many may start at the same time: one that finds a turn used up begins in line, and
        its own steps count. `note` is told when each of them began and ended."""
        try:
            if self.this_turn.is_used_up:
                await self.turn()
            return await self._measured(work, note)
        finally:
            work.close()  # where it has not begun

    @coroutine
    def _measured(self, work: Coroutine[Any, Any, T], note: NoteStep | None) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(work.send, None)
        while True:
            start_s = self.clock.monotonic()
            try:
                waits_for = step()
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                stop_s = self.clock.monotonic()
                self.this_turn.spend(stop_s - start_s)
                if note is not None:
                    note(start_s, stop_s)
            try:
                step = partial(work.send, (yield waits_for))
            except BaseException as error:  # of what it waits for: the work's to handle
                step = partial(work.throw, error)

    def _begin(self, work: Slices[None]) -> None:
        self._under_way += 1
        self._append(self._counted(work))

    def _counted(self, work: Slices[None]) -> Slices[None]:
        try:
            yield from work
        finally:
            self._under_way -= 1
            if self._waiting:
                self._begin(self._waiting.popleft())

    def _append(self, work: Slices[None]) -> None:
        self._queue.append(work)
        if not self._is_running:
            self._is_running = True
            self._tasks.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        work = self._queue.popleft()
        monotonic = self.clock.monotonic
        stop_s = monotonic() + SLICE_S
        self.slices += 1
        try:
            next(work)
            while monotonic() < stop_s:
                next(work)
            self._queue.append(work)
        except StopIteration:
            pass
        finally:
            if self._queue:
                self._tasks.call_soon(self._run_slice)
            else:
                self._is_running = False


def _once(callback: Callable[[], object]) -> Slices[None]:
    callback()
    yield from ()


class Pace:
    """How much of its slice a coroutine has used, which pauses by `await pace.breathe()`."""

    __slots__ = ("_clock", "_line", "_stop_s")

    def __init__(self, clock: Clock, line: Line, slice_s: float = SLICE_S) -> None:
        self._clock = clock
        self._line = line
        self._stop_s = clock.monotonic() + slice_s

    async def breathe(self) -> None:
        """Let others run where the slice is used up."""
        if self._clock.monotonic() >= self._stop_s:
            await self._line.turn()
            self._stop_s = self._clock.monotonic() + SLICE_S
