"""Deadlines by key, for state machines without a clock: set, move, cancel, and take those that have passed.

Moving a deadline to a later time, which every heartbeat does, costs a dict look-up: the heap keeps the old entry and
looks again when that comes up. So an entry in the heap may be stale; one that is due is never missing.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    __slots__ = ("_due", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the time of the key's one entry in the heap that counts
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def set(self, key: K, at_ms: int) -> None:
        """Replaces the key's deadline, if it has one."""
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        """Fine where there is none. The heap's entry goes when it comes up, or when too many are stale."""
        if self._due.pop(key, None) is not None and len(self._heap) > 64 + 4 * len(self._due):
            self._rebuild()

    def get(self, key: K) -> int | None:
        return self._due.get(key)

    @property
    def next_ms(self) -> int | None:
        """A time at which `pop_due` should be called; nothing is due before it."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[K]:
        """The keys whose deadline has passed, earliest first. They have none afterwards."""
        passed = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue
            del self._queued[key]
            due_ms = self._due.get(key)
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                del self._due[key]
                passed.append(key)
            else:
                self._push(key, due_ms)
        return passed

    def _push(self, key: K, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, key))

    def _rebuild(self) -> None:
        self._heap.clear()
        self._queued.clear()
        for key, at_ms in self._due.items():
            self._push(key, at_ms)
