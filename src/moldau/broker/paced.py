"""What handlers make of many elements, with pauses between: others run when a request has used up its slice.

`in_slices` is for handlers that are generator functions, `paced` and `awaited` for coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

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


async def awaited(context: RequestContext, work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """What `work` comes to for each, one after the other."""
    made = []
    for item in items:
        made.append(await work(item))
        await context.breathe()
    return made
