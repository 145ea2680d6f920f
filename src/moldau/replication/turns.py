"""Whose turn it is to append to a partition, while somebody who came earlier is not ready yet.

Appends happen in the order in which their requests came, as producers with several requests in flight rely on. Nearly
all are ready at once and nobody waits. One that needs something first (a batch recompressed in a thread) takes a
turn; whoever comes to one of its partitions before it has ended takes the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol


class Lined(Protocol):
    """A partition, as far as turns are concerned."""

    last_turn: asyncio.Future[None] | None


class Turn:
    """The place of one request in the lines of its partitions. All are taken at once: no two wait for each other."""

    def __init__(self, partitions: Sequence[Lined]) -> None:
        self._partitions = partitions
        self._ahead = [p.last_turn for p in partitions if p.last_turn is not None]
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            partition.last_turn = self._ended

    async def come(self) -> None:
        """Wait until everyone who came earlier is done."""
        for ahead in self._ahead:
            await asyncio.shield(ahead)

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        for partition in self._partitions:
            if partition.last_turn is self._ended:
                partition.last_turn = None
