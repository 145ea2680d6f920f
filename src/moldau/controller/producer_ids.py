"""Ids for idempotent producers, never given twice: not by two brokers, not after a crash.

A broker reserves a block of ids in the store before it hands out the first of them. What is left of a block
when the broker ends is lost, which costs nothing: there are 2^63 ids.
"""

from __future__ import annotations

import asyncio

from moldau.base.errors import ErrorCode, KafkaError
from moldau.store.port import Conflict, Create, Operation, Put, Store

PATH = "/producer_ids/next_block"
BLOCK_SIZE = 1000
#: How often another broker may be first before a producer is told to come again.
ATTEMPTS_MAX = 20


class ProducerIds:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 0
        self._stop = 0
        self._reserving = asyncio.Lock()

    async def next(self) -> int:
        """KafkaError where no block could be reserved; the producer asks again."""
        while self._next >= self._stop:
            async with self._reserving:
                if self._next >= self._stop:
                    self._next = await self._reserve()
                    self._stop = self._next + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve(self) -> int:
        for _ in range(ATTEMPTS_MAX):
            entry = await self._store.get(PATH)
            first = 0 if entry is None else int(entry.value)
            after = str(first + BLOCK_SIZE).encode()
            operation: Operation = Create(PATH, after) if entry is None else Put(PATH, after, entry.version)
            try:
                await self._store.multi([operation])
                return first
            except Conflict:
                continue
        raise KafkaError(
            ErrorCode.coordinator_load_in_progress, "too many brokers reserve producer ids at once"
        )
