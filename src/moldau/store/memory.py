"""The cluster store in memory, for the simulation of one broker and for clusters within one process.

The `Tree` is the disk: whoever holds it finds what `multi` has returned for, so a simulated restart passes it on to
the next `MemoryStore`. With a simulated host's Tasks, operations take a thread's time, and a host may crash while
they are under way, as with a real store; without, they are immediate. Nothing survives the process.

Several stores on one tree, all of one loop, are several processes with one store; `holder` names each. A session
ends by `end_session`, `close`, `abandon` (as the process's death does it), `expire` (as if it had been silent for
too long), and when the next store of the same holder is made. There are no time-outs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from moldau.runtime.ports import Tasks
from moldau.store import tree as trees
from moldau.store.engine import Engine
from moldau.store.port import Entry, Operation, SessionEnded

T = TypeVar("T")


class Tree(trees.Tree):
    """With the stores that look at it, by holder."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[str, MemoryStore] = {}

    def tell(self, paths: Sequence[str]) -> None:
        for store in list(self.stores.values()):
            if paths and store.watches:
                store.watches.touched(paths)


class MemoryStore(Engine):
    def __init__(self, tree: Tree | None = None, tasks: Tasks | None = None, *, holder: str = "") -> None:
        super().__init__(tasks or _RunningLoop())
        self.tree = tree or Tree()
        self._threads = tasks
        self._holder = holder
        before = self.tree.stores.pop(holder, None)
        if before is not None and before.session_id is not None:
            self.tree.tell(self.tree.end_session(before.session_id))
        self.tree.stores[holder] = self

    async def get(self, path: str) -> Entry | None:
        return await self._run(lambda: self.tree.entries.get(path))

    async def children(self, path: str) -> list[Entry]:
        return await self._run(lambda: self.tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        session_id = self.session_id
        await self._change(lambda: (None, self.tree.multi(operations, session_id)))

    async def create_candidate(self, path: str, value: bytes) -> str:
        session_id = self.session_id

        def create() -> tuple[str, list[str]]:
            created = self.tree.create_candidate(path, value, session_id)
            return created, [created]

        return await self._change(create)

    async def begin_session(self, on_end: Callable[[], object]) -> str:
        session_id = await self._run(self.tree.begin_session)
        self.session_begun(session_id, on_end)
        return session_id

    async def end_session(self) -> None:
        session_id = self.session_id
        if session_id is not None:
            await self._change(lambda: (None, self.tree.end_session(session_id)))
            self.session_over(session_id, tell=False)

    async def close(self) -> None:
        await self.end_session()
        self.watches.clear()
        if self.tree.stores.get(self._holder) is self:
            del self.tree.stores[self._holder]

    def abandon(self) -> None:
        """As a process that is gone: nothing of it is called again."""
        self.watches.clear()
        self.expire()
        self.session_over(self.session_id, tell=False)

    def expire(self) -> None:
        """End the session without its process knowing."""
        if self.session_id is not None:
            self.tree.tell(self.tree.end_session(self.session_id))
            self.tasks.call_soon(self.session_over, self.session_id)

    async def _change(self, work: Callable[[], tuple[T, list[str]]]) -> T:
        def change() -> T:
            result, paths = work()
            self.tree.tell(paths)
            return result

        session_id = self.session_id
        try:
            return await self._run(change)
        except SessionEnded:
            self.session_over(session_id)
            raise

    async def _run(self, work: Callable[[], T]) -> T:
        return work() if self._threads is None else await self._threads.in_thread(work)


class _RunningLoop:
    """What an engine needs of Tasks, where none are given."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return asyncio.get_running_loop().call_soon(callback, *args)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def sleep(self, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, (due := asyncio.Event()).set)
        await due.wait()
