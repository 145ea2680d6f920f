"""The cluster store in memory, for the simulation and for tests.

What `multi` has returned for is there for whoever holds the same object, so a simulated restart passes it on,
as a disk would. Nothing survives the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.store.port import ANY_VERSION, Check, Conflict, Create, Delete, Entry, Operation


class MemoryStore:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    async def get(self, path: str) -> Entry | None:
        return self._entries.get(path)

    async def children(self, path: str) -> list[Entry]:
        return sorted(entry for entry in self._entries.values() if entry.path.rpartition("/")[0] == path)

    async def multi(self, operations: Sequence[Operation]) -> None:
        entries = dict(self._entries)
        for operation in operations:
            _apply(entries, operation)
        self._entries = entries

    async def close(self) -> None:
        pass


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
