"""Long decisions in slices: one that looks at all partitions of the cluster pauses now and then, and others run. Pure.

A decision is a generator that yields where it can pause and returns what it has decided. Changes of the cluster come
one after the other (`change_queue`), so the image is the same after a pause as before.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from moldau.runtime.ports import Tasks

T = TypeVar("T")

PARTITIONS_PER_SLICE = 500
"""A few milliseconds."""

Slices: TypeAlias = Generator[None, None, T]


def whole(decision: Slices[T]) -> T:
    """What a decision comes to, without a pause."""
    while True:
        try:
            next(decision)
        except StopIteration as end:
            value: T = end.value
            return value


async def in_slices(tasks: Tasks, decision: Slices[T]) -> T:
    """What a decision comes to, while others run in its pauses."""
    while True:
        try:
            next(decision)
        except StopIteration as end:
            value: T = end.value
            return value
        await tasks.sleep(0)
