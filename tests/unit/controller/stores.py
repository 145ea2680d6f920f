"""Stores that fail as stores do, and the loop as Tasks, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Entry, Operation, Unknown

BROKERS_ACT_S = 0.001
"""How long a change waits here for brokers that act on it: there are none."""


class TroubledStore(MemoryStore):
    """`troubles` says what happens to the next writes: "" nothing; "full" refused; "lost" not done, and nobody knows;
    "late" done, and nobody knows. `blind` is how many reads fail then.
    """

    def __init__(self, tree: Tree | None = None) -> None:
        super().__init__(tree)
        self.troubles: list[str] = []
        self.blind = 0
        self.writes: list[Sequence[Operation]] = []

    async def get(self, path: str) -> Entry | None:
        if self.blind:
            self.blind -= 1
            raise OSError("no connection")
        return await super().get(path)

    async def multi(self, operations: Sequence[Operation]) -> None:
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "full":
            raise OSError("the disk is full")
        if trouble != "lost":
            await super().multi(operations)
            self.writes.append(operations)
        if trouble in ("lost", "late"):
            raise Unknown("the connection was lost")


class TestTasks:
    """As much of Tasks as the controller uses, on the loop of now."""

    __test__ = False

    def spawn(self, work: Any, *, name: str) -> Any:
        return asyncio.ensure_future(work)

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> Any:
        return asyncio.get_running_loop().call_later(min(delay_s, BROKERS_ACT_S), callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
