"""When a connection's request may append to a partition, while one of its earlier ones is not ready yet.

Requests of one connection append in the order in which they came, as producers with several of them in flight rely on.
Nearly all are ready at once and nobody waits. One that needs something first (a batch recompressed in a thread, the
word of a transaction's coordinator) takes a turn; what the connection sends to one of its partitions before it has
ended takes the next one. Others go ahead meanwhile: nobody waits for another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Protocol


class Lined(Protocol):
    """A partition, as far as turns are concerned."""

    turns: dict[Hashable, asyncio.Future[None]]
    """The last turn of each connection that waits."""


class Turn:
    """The place of one request in the lines of its partitions. All are taken at once: no two wait for each other."""

    def __init__(self, connection: Hashable, partitions: Sequence[Lined]) -> None:
        self._connection = connection
        self._partitions = partitions
        self._ahead = [p.turns[connection] for p in partitions if connection in p.turns]
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            partition.turns[connection] = self._ended

    async def come(self) -> None:
        """Wait until what came earlier is done."""
        for ahead in self._ahead:
            await asyncio.shield(ahead)

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        for partition in self._partitions:
            if partition.turns.get(self._connection) is self._ended:
                del partition.turns[self._connection]
