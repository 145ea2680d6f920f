"""Long decisions in slices: one that looks at all partitions of the cluster pauses now and then, and others run. Pure.

A decision is a generator that yields where it can pause and returns what it has decided. Changes of the cluster come
one after the other (`change_queue`), so the image is the same after a pause as before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from moldau.runtime.line import Slices as Slices
from moldau.runtime.line import whole as whole
from moldau.runtime.ports import Tasks

T = TypeVar("T")

PARTITIONS_PER_SLICE = 500
"""A few milliseconds."""
LOOKS_PER_SLICE = 5_000
"""The same for what is only looked up or counted."""


class Portion:
    """How much of a slice is used up: `if portion.take(weight): yield`. A partition weighs 1."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PARTITIONS_PER_SLICE

    def take(self, weight: int = 1) -> bool:
        """Whether the slice is full with this."""
        self._left -= weight
        if self._left > 0:
            return False
        self._left = PARTITIONS_PER_SLICE
        return True


def times_named(items: Iterable[T], key: Callable[[T], Hashable]) -> Slices[dict[Hashable, int]]:
    """How often a request names each thing."""
    times: dict[Hashable, int] = {}
    for number, item in enumerate(items, 1):
        if number % LOOKS_PER_SLICE == 0:
            yield
        name = key(item)
        times[name] = times.get(name, 0) + 1
    return times


async def in_slices(tasks: Tasks, decision: Slices[T]) -> T:
    """What a decision comes to, while others run in its pauses."""
    while True:
        try:
            next(decision)
        except StopIteration as end:
            value: T = end.value
            return value
        await tasks.sleep(0)
