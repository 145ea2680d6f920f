"""The cluster store in memory, for the simulation and for tests.

The `Tree` is the disk: whoever holds it finds what `multi` has returned for, so a simulated restart passes it
on to the next `MemoryStore`. With Tasks, operations take a thread's time, and a host may crash while they are
under way, as with a real store; without, they are immediate. Nothing survives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from moldau.runtime.ports import Tasks
from moldau.store.port import ANY_VERSION, Check, Conflict, Create, Delete, Entry, Operation

T = TypeVar("T")


class Tree:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def children(self, path: str) -> list[Entry]:
        return sorted(entry for entry in self.entries.values() if entry.path.rpartition("/")[0] == path)

    def multi(self, operations: Sequence[Operation]) -> None:
        entries = dict(self.entries)
        for operation in operations:
            _apply(entries, operation)
        self.entries = entries


class MemoryStore:
    def __init__(self, tree: Tree | None = None, tasks: Tasks | None = None) -> None:
        self.tree = tree or Tree()
        self._tasks = tasks

    async def get(self, path: str) -> Entry | None:
        return await self._run(lambda: self.tree.entries.get(path))

    async def children(self, path: str) -> list[Entry]:
        return await self._run(lambda: self.tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._run(lambda: self.tree.multi(operations))

    async def close(self) -> None:
        pass

    async def _run(self, work: Callable[[], T]) -> T:
        return work() if self._tasks is None else await self._tasks.in_thread(work)


def _apply(entries: dict[str, Entry], operation: Operation) -> None:
    path = operation.path
    before = entries.get(path)
    if isinstance(operation, Create):
        if before is not None:
            raise Conflict(path)
        entries[path] = Entry(path, operation.value, 0)
        return
    if before is None or operation.version not in (ANY_VERSION, before.version):
        raise Conflict(path)
    if isinstance(operation, Delete):
        del entries[path]
    elif not isinstance(operation, Check):
        entries[path] = Entry(path, operation.value, before.version + 1)
