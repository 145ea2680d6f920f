"""The controller's last writes, for the brokers that follow them, and how far each broker has come.

A bounded ring: who is within it gets the deltas that it lacks; who is not, or was never there, takes a snapshot. New
deltas wake those who wait (`next_delta`). Positions are compared whole, so that a broker that has followed another
controller somewhere else is never given a delta that does not fit. Waiting for brokers to have applied a write ends
early for those that are fenced meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from moldau.metadata.codec import encoded
from moldau.metadata.records import Delta, Position
from moldau.runtime.ports import Tasks

DELTAS_MAX = 1_000
PARTITIONS_MAX = 50_000
"""Of the deltas kept: what they weigh is mostly the partitions in them."""
ENCODED_MAX = 64
"""Deltas kept as bytes: some 4 MB at most."""
WAITING_MAX = 10_000


class TooManyWait(Exception):
    """More wait for the cluster than this controller keeps account of."""


class DeltaLog:
    def __init__(self, base: Position, deltas: Iterable[Delta] = ()) -> None:
        """`base` is the position before the first delta."""
        self._base = base
        self._deltas: deque[Delta] = deque()
        self._weights: deque[int] = deque()
        self._weight = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._encoded: dict[int, tuple[bytes, ...]] = {}
        """The newest deltas as bytes, by sequence: every broker asks for them."""
        for delta in deltas:
            self.append(delta)

    @property
    def position(self) -> Position:
        return self._deltas[-1].position if self._deltas else self._base

    def append(self, delta: Delta) -> None:
        weight = _weight(delta)
        self._deltas.append(delta)
        self._weights.append(weight)
        self._weight += weight
        while len(self._deltas) > DELTAS_MAX or (self._weight > PARTITIONS_MAX and len(self._deltas) > 1):
            self._base = self._deltas.popleft().position
            self._weight -= self._weights.popleft()
        self._wake()

    def since(self, position: Position) -> list[Delta] | None:
        """The deltas that follow a position, oldest first; None where they are not all there, and a snapshot is due."""
        skip = position.sequence - self._base.sequence
        if not 0 <= skip <= len(self._deltas):
            return None
        before = self._base if skip == 0 else self._deltas[skip - 1].position
        if before != position:
            return None
        return list(islice(self._deltas, skip, None))

    def encoded(self, delta: Delta) -> Iterator[bytes]:
        """A delta's records in pieces (`codec.encoded`), made once for all who ask for it soon."""
        known = self._encoded.get(delta.sequence)
        if known is not None:
            yield from known
            return
        pieces = []
        for piece in encoded(delta.records):
            pieces.append(piece)
            yield piece
        self._encoded[delta.sequence] = tuple(pieces)
        while len(self._encoded) > ENCODED_MAX:
            del self._encoded[next(iter(self._encoded))]

    def next_delta(self) -> asyncio.Future[None]:
        """Resolves with the next delta, or when the controller ends. Cancel it when it is not waited for any more."""
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyWait
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        future.add_done_callback(lambda done: self._waiting.pop(done, None))
        return future

    def close(self) -> None:
        """Nothing more comes: wake everyone."""
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _weight(delta: Delta) -> int:
    weight = 1
    for record in delta.records:
        for field in ("partitions", "states"):
            weight += len(getattr(record, field, ()))
    return weight


class Applied:
    """How far brokers have applied the controller's writes."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._positions: dict[int, Position] = {}
        self._waiting: dict[asyncio.Future[bool], tuple[Position, set[int]]] = {}
        self._late: set[int] = set()
        """Who was waited for in vain, and has not been heard of since."""

    def position(self, broker_id: int) -> Position | None:
        return self._positions.get(broker_id)

    def note(self, broker_id: int, position: Position) -> None:
        """A broker has applied all up to here."""
        self._late.discard(broker_id)
        if position > self._positions.get(broker_id, Position(-1, -1)):
            self._positions[broker_id] = position
            self._settle(broker_id, position)

    def forget(self, broker_id: int) -> None:
        """A broker is gone: nobody waits for it."""
        self._positions.pop(broker_id, None)
        self._late.discard(broker_id)
        self._settle(broker_id, None)

    async def until_known(self, position: Position, brokers: Sequence[int], patience_s: float) -> None:
        """Wait for these brokers, but for those who hang: one that lets somebody wait in vain is not waited for again
        before it is heard of.
        """
        awaited = [broker for broker in brokers if broker not in self._late]
        if not await self.until(position, awaited, patience_s):
            self._late.update(self._behind(position, awaited))

    def _behind(self, position: Position, brokers: Sequence[int]) -> set[int]:
        return {broker for broker in brokers if self._positions.get(broker, Position(-1, -1)) < position}

    async def until(self, position: Position, brokers: Sequence[int], timeout_s: float) -> bool:
        """Whether these brokers have applied a write, or are gone, within the time. Where too many wait, nobody else
        does."""
        behind = self._behind(position, brokers)
        if not behind:
            return True
        if len(self._waiting) >= WAITING_MAX:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = (position, behind)
        timer = self._tasks.call_later(timeout_s, self._end, future, False)
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)

    def close(self) -> None:
        for future in list(self._waiting):
            self._end(future, False)

    def _settle(self, broker_id: int, reached: Position | None) -> None:
        for future, (position, behind) in list(self._waiting.items()):
            if broker_id in behind and (reached is None or reached >= position):
                behind.discard(broker_id)
                if not behind:
                    self._end(future, True)

    def _end(self, future: asyncio.Future[bool], outcome: bool) -> None:
        self._waiting.pop(future, None)
        if not future.done():
            future.set_result(outcome)
