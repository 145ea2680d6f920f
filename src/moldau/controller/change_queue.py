"""Changes of the cluster, one after the other: each is decided on the image of its turn, written, applied, published.

A change that a caller has asked for is carried out even if the caller is cancelled: half of it may be written. Where
the store refuses, nothing has changed, and the caller hears KAFKA_STORAGE_ERROR; where another controller has taken
over, NOT_CONTROLLER, as everyone does from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.controller.delta_log import DeltaLog
from moldau.controller.persistence import Fenced, PersistentImage
from moldau.metadata.records import Delta, Record
from moldau.runtime.ports import Tasks

log = logging.getLogger(__name__)

CHANGES_WAITING_MAX = 5_000

#: Called with each write, durable and applied, before its change is answered.
OnDelta = Callable[[Delta], Awaitable[None] | None]

T = TypeVar("T")
Decided = tuple[T, Sequence[Record]]
Decide = Callable[[], Decided[T] | Awaitable[Decided[T]]]
"""A decision that takes long is awaited, and lets others run; the image does not change meanwhile."""
OnEnd = Callable[[KafkaError | None], object]


class ChangeQueue:
    def __init__(
        self,
        state: PersistentImage,
        tasks: Tasks,
        on_delta: OnDelta | None,
        on_fenced: Callable[[str], object],
    ) -> None:
        self.deltas = DeltaLog(state.base, state.begun)
        self._state = state
        self._tasks = tasks
        self._on_delta = on_delta
        self._on_fenced = on_fenced
        self._fenced: str | None = None
        self._one_change = asyncio.Lock()
        self._waiting = 0

    @property
    def is_fenced(self) -> bool:
        return self._fenced is not None

    def resign(self, reason: str) -> None:
        """Change nothing any more."""
        if self._fenced is None:
            self._fenced = reason
            self.deltas.close()
            self._on_fenced(reason)

    async def perform(
        self, decide: Decide[T], on_end: OnEnd | None = None, written: list[Record] | None = None
    ) -> T:
        """Decide in its turn, and carry out what was decided. `on_end` is called then, with the error if there is one,
        before the next change; `written` gets the records that are durable, also where only some are.
        """
        if self._waiting >= CHANGES_WAITING_MAX:
            raise KafkaError(ErrorCode.request_timed_out, "Too many changes of the cluster are waiting.")
        self._waiting += 1
        change = self._tasks.spawn(self._in_turn(decide, on_end, written), name="change of the cluster")
        return await asyncio.shield(change)

    async def _in_turn(self, decide: Decide[T], on_end: OnEnd | None, written: list[Record] | None) -> T:
        try:
            async with self._one_change:
                self._check()
                decided = decide()
                outcome, records = decided if isinstance(decided, tuple) else await decided
                error = await self._write(records, [] if written is None else written)
                if on_end is not None:
                    on_end(error)
                if error is not None:
                    raise error
                return outcome
        finally:
            self._waiting -= 1

    def _check(self) -> None:
        if self._fenced is not None:
            raise KafkaError(ErrorCode.not_controller, self._fenced)

    async def _write(self, records: Sequence[Record], written: list[Record]) -> KafkaError | None:
        if not records:
            return None
        try:
            async for delta in self._state.write(records):
                written += delta.records
                self.deltas.append(delta)
                waiting = None if self._on_delta is None else self._on_delta(delta)
                if waiting is not None:
                    await waiting
            return None
        except Fenced as fenced:
            log.error("this broker is no longer the controller: %s", fenced)
            self.resign(str(fenced))
            return KafkaError(ErrorCode.not_controller, str(fenced))
        except OSError as error:
            log.error("a change of the cluster failed: %s", error)
            return KafkaError(ErrorCode.kafka_storage_error, str(error))
        except BaseException:
            self.resign("a write was interrupted, and may have been done or not")
            raise
