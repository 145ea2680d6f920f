"""Ids for idempotent producers, never given twice: not by two brokers, not after a crash.

The controller gives blocks away (AllocateProducerIds), and writes how far it has come before it answers. A broker takes
the ids of its block one by one. What is left of a block when the broker ends is lost, which costs nothing: there are
2^63 ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ProducerIdsAllocated

BLOCK_SIZE = 1000


class Block(NamedTuple):
    first: int
    length: int


def decide_block(image: ClusterImage) -> tuple[ProducerIdsAllocated, Block]:
    first = image.next_producer_id
    return ProducerIdsAllocated(first + BLOCK_SIZE), Block(first, BLOCK_SIZE)


class ProducerIds:
    """A broker's ids; `allocate` asks the controller for a block, and raises where none can be had."""

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._stop = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        while self._next >= self._stop:
            async with self._allocating:
                if self._next >= self._stop:
                    first, length = await self._allocate()
                    self._next, self._stop = first, first + length
        producer_id = self._next
        self._next += 1
        return producer_id
