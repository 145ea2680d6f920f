"""What handlers make of many elements, with pauses between: others run when a request has used up its slice.

`in_slices` is for handlers that are generator functions, `paced`, `awaited` and `in_steps` for coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from moldau.base.limits import COORDINATOR_ELEMENTS_PER_STEP
from moldau.broker.interface import RequestContext
from moldau.runtime.line import Slices

T = TypeVar("T")
R = TypeVar("R")

ELEMENTS_PER_PAUSE = 32
"""Of those that take microseconds."""


def in_slices(work: Callable[[T], R], items: Iterable[T]) -> Slices[list[R]]:
    """What `work` makes of each; a pause after each of them, as one may take long."""
    made = []
    for item in items:
        made.append(work(item))
        yield
    return made


async def paced(context: RequestContext, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `work` makes of each, none of which takes long."""
    made = []
    for number, item in enumerate(items):
        made.append(work(item))
        if number % ELEMENTS_PER_PAUSE == 0:
            await context.breathe()
    return made


async def in_steps(
    context: RequestContext, step: Callable[[Sequence[T]], Awaitable[Sequence[R]]], items: Sequence[T]
) -> list[R]:
    """What a coordinator answers for each; so many in one step that it does not hold the loop, others between."""
    made: list[R] = []
    for start in range(0, len(items), COORDINATOR_ELEMENTS_PER_STEP):
        if start:
            await context.breathe()
        made += await step(items[start : start + COORDINATOR_ELEMENTS_PER_STEP])
    return made


async def awaited_once(
    context: RequestContext, work: Callable[[T], Awaitable[R]], items: Sequence[T]
) -> list[R]:
    """What `work` comes to for each. What comes again is not worked on again, and answered as often, as by Kafka."""
    once = dict.fromkeys(items)
    found = dict(zip(once, await awaited(context, work, once), strict=True))
    return [found[item] for item in items]


async def awaited(context: RequestContext, work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """What `work` comes to for each, one after the other."""
    made = []
    for item in items:
        made.append(await work(item))
        await context.breathe()
    return made
