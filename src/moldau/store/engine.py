"""What all engines of the store share on the loop's side: watches, the one session, and elections.

An engine reports changes to its `watches`, and the end of its session with `session_over(id)`;
calls to watchers are merged per turn of the loop. An election is a folder of ephemeral entries with rising numbers:
each candidate watches the one before it, so that a death wakes one process and not all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol

from moldau.store.port import (
    Conflict,
    Delete,
    Entry,
    SessionEnded,
    Unavailable,
    parent_of,
)

CANDIDATE = "c-"
SEQUENCE_DIGITS = 10
"""As ZooKeeper counts: names of one election sort by their age."""
RETRY_S = 0.2
"""Between two attempts of a candidate to read a store that is not there."""


class Scheduler(Protocol):
    """The part of Tasks that engines use on the loop."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...
    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...
    async def sleep(self, delay_s: float) -> None: ...


def candidate_name(number: int) -> str:
    return f"{CANDIDATE}{number:0{SEQUENCE_DIGITS}d}"


class PathWatch:
    """One watcher; `fingerprint` is what the engine last saw, where it compares."""

    __slots__ = ("_callback", "_watches", "fingerprint", "is_due", "path")

    def __init__(self, watches: Watches, path: str, callback: Callable[[], object]) -> None:
        self.path = path
        self.is_due = False
        self.fingerprint: object = None
        self._watches = watches
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None
        self._watches.remove(self)

    def call(self) -> None:
        self.is_due = False
        if self._callback is not None:
            self._callback()


class Watches:
    """All watchers of one store, called in the order in which they became due."""

    def __init__(self, tasks: Scheduler, on_unwatched: Callable[[str], object]) -> None:
        self._tasks = tasks
        self._on_unwatched = on_unwatched
        self._by_path: dict[str, dict[PathWatch, None]] = {}

    def __iter__(self) -> Iterator[PathWatch]:
        return (watch for group in list(self._by_path.values()) for watch in list(group))

    def __bool__(self) -> bool:
        return bool(self._by_path)

    @property
    def paths(self) -> list[str]:
        return list(self._by_path)

    def add(self, path: str, callback: Callable[[], object]) -> PathWatch:
        watch = PathWatch(self, path, callback)
        self._by_path.setdefault(path, {})[watch] = None
        return watch

    def remove(self, watch: PathWatch) -> None:
        group = self._by_path.get(watch.path, {})
        group.pop(watch, None)
        if not group and self._by_path.pop(watch.path, None) is not None:
            self._on_unwatched(watch.path)

    def touched(self, paths: Iterable[str]) -> None:
        """These entries were created, changed or deleted: who watches one of them or its parent?"""
        for path in paths:
            for watched in (path, parent_of(path)):
                for watch in self._by_path.get(watched, ()):
                    self.call_later(watch)

    def touched_at(self, path: str) -> None:
        """Something has changed at this path or directly below it."""
        for watch in self._by_path.get(path, ()):
            self.call_later(watch)

    def touched_all(self) -> None:
        for watch in self:
            self.call_later(watch)

    def call_later(self, watch: PathWatch) -> None:
        if not watch.is_due:
            watch.is_due = True
            self._tasks.call_soon(watch.call)

    def clear(self) -> None:
        for watch in self:
            watch.cancel()


class Candidate:
    """Follows its place in the election until it is first, withdrawn, or its session is over."""

    def __init__(self, engine: Engine, path: str, on_first: Callable[[], object] | None) -> None:
        self.path = path
        self._engine = engine
        self._on_first = on_first
        self._is_over = False
        self._has_won = False
        self._settled = asyncio.Event()
        """First, or over."""
        self._task = engine.tasks.spawn(self._follow(), name=f"candidate {path}")

    @property
    def is_first(self) -> bool:
        return self._has_won and not self._is_over

    async def won(self) -> None:
        await self._settled.wait()
        if self._is_over:
            raise SessionEnded(f"the candidacy {self.path} is over")

    async def withdraw(self) -> None:
        if not self._is_over:
            try:
                await self._engine.multi([Delete(self.path)])
            except (Conflict, SessionEnded):
                pass  # it is gone, which is what was asked for
            self.end()

    def end(self) -> None:
        """Its entry is gone, or will be with the session."""
        self._is_over = True
        self._settled.set()
        self._task.cancel()
        self._engine.forget(self)

    async def _follow(self) -> None:
        while True:
            try:
                before = await self._predecessor()
            except Unavailable:
                await self._engine.tasks.sleep(RETRY_S)
                continue
            except LookupError:
                self.end()
                return
            if before is None:
                break
            await self._gone(before)
        self._has_won = True
        self._settled.set()
        if self._on_first is not None:
            self._on_first()

    async def _predecessor(self) -> str | None:
        """LookupError where the candidate itself is gone."""
        paths = [entry.path for entry in await self._engine.children(parent_of(self.path))]
        if self.path not in paths:
            raise LookupError(self.path)
        place = paths.index(self.path)
        return paths[place - 1] if place else None

    async def _gone(self, path: str) -> None:
        """Wait until the candidate at `path` may be gone."""
        changed = asyncio.Event()
        watch = self._engine.watch(path, changed.set)
        try:
            while True:
                changed.clear()
                try:
                    if await self._engine.get(path) is None:
                        return
                except Unavailable:
                    await self._engine.tasks.sleep(RETRY_S)
                    continue
                await changed.wait()
        finally:
            watch.cancel()


class Engine:
    """The base of all engines."""

    def __init__(self, tasks: Scheduler) -> None:
        self.tasks = tasks
        self.session_id: str | None = None
        self.watches = Watches(tasks, self.unwatched)
        self._on_end: Callable[[], object] = lambda: None
        self._candidates: list[Candidate] = []

    # What an engine does its own way.

    async def get(self, path: str) -> Entry | None:
        raise NotImplementedError

    async def children(self, path: str) -> list[Entry]:
        raise NotImplementedError

    async def multi(self, operations: Any) -> None:
        raise NotImplementedError

    async def create_candidate(self, path: str, value: bytes) -> str:
        """An ephemeral entry with the next number below `path`: its path. As `multi` otherwise."""
        raise NotImplementedError

    def unwatched(self, path: str) -> None:
        """The last watcher of a path has gone."""

    # What they share.

    def watch(self, path: str, callback: Callable[[], object]) -> PathWatch:
        return self.watches.add(path, callback)

    async def first(self, path: str) -> Entry | None:
        return next((entry for entry in await self.children(path)), None)

    async def stand(self, path: str, value: bytes, on_first: Callable[[], object] | None = None) -> Candidate:
        session_id = self.session_id
        if session_id is None:
            raise SessionEnded("there is no session to stand with")
        created = await self.create_candidate(path, value)
        candidate = Candidate(self, created, on_first)
        self._candidates.append(candidate)
        if self.session_id != session_id:
            candidate.end()
            raise SessionEnded("the session is over")
        return candidate

    def forget(self, candidate: Candidate) -> None:
        if candidate in self._candidates:
            self._candidates.remove(candidate)

    def session_begun(self, session_id: str, on_end: Callable[[], object]) -> None:
        self.session_id = session_id
        self._on_end = on_end

    def session_over(self, session_id: str | None, *, tell: bool = True) -> None:
        """Call it as often as it is noticed: only the first one counts.

        `on_end` is called here and now: nothing is done in between that would still believe in the session."""
        if session_id is None or session_id != self.session_id:
            return
        self.session_id = None
        on_end, self._on_end = self._on_end, lambda: None
        for candidate in list(self._candidates):
            candidate.end()
        if tell:
            on_end()
