"""The second phase of a transaction's end: markers to all its partitions, then the record that all are written.

What cannot be written now is tried again until it can, or until this broker does not coordinate any more; whoever
takes over decides on the markers anew. Partitions that are gone need none. A marker that is refused as fenced tells
that another coordinator has taken over: nothing is recorded here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.messages import Markers
from moldau.runtime.ports import Tasks

log = logging.getLogger(__name__)

RETRY_DELAY_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""A partition whose leader has died is led by another within a second, nearly always."""
FENCED = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)

WriteMarkers = Callable[[Markers], Awaitable[dict[TopicPartition, ErrorCode]]]
"""Writes markers to the partitions that are named: an outcome for each, none for a partition that is gone."""
Complete = Callable[[Markers], Awaitable[ErrorCode]]
NoteMarkers = Callable[[Markers, tuple[TopicPartition, ...]], object]
"""Is told which partitions wait for their markers still, when some have theirs."""


class Ending:
    """`is_led()` tells whether this broker coordinates the transaction still."""

    def __init__(
        self,
        tasks: Tasks,
        write: WriteMarkers,
        complete: Complete,
        note: NoteMarkers,
        is_led: Callable[[Markers], bool],
    ) -> None:
        self._tasks = tasks
        self._write = write
        self._complete = complete
        self._note = note
        self._is_led = is_led

    def begin(self, markers: Markers) -> None:
        self._tasks.spawn(self._carry_out(markers), name=f"end transaction of {markers.transactional_id}")

    async def _carry_out(self, markers: Markers) -> None:
        attempt = 0
        left = markers.partitions
        while left and self._is_led(markers):
            outcomes = await self._write(markers._replace(partitions=left))
            left = tuple(place for place in left if outcomes.get(place, ErrorCode.none) is not ErrorCode.none)
            if left:
                self._note(markers, left)
            if any(error in FENCED for error in outcomes.values()):
                log.error("the end of %s's transaction is fenced: %s", markers.transactional_id, outcomes)
                return
            if left:
                level = logging.INFO if attempt < len(RETRY_DELAY_S) else logging.WARNING
                log.log(level, "markers of %s: %s, trying again", markers.transactional_id, outcomes)
                await self._wait(attempt)
                attempt += 1
        attempt = 0
        while self._is_led(markers):
            if await self._complete(markers) in (ErrorCode.none, ErrorCode.not_coordinator):
                return
            await self._wait(attempt)
            attempt += 1

    async def _wait(self, attempt: int) -> None:
        await self._tasks.sleep(RETRY_DELAY_S[min(attempt, len(RETRY_DELAY_S) - 1)])
