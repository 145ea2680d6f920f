"""Asking the controller for other in-sync sets, for all partitions led here together (AlterPartition, KIP-497).

One request is under way at a time; what is wished meanwhile goes with the next. Where the answer does not come, both
sets count in the partitions concerned until it does. Kafka's `AlterPartitionManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.metadata.records import PartitionState
from moldau.replication.leader import InSyncWish, PartitionLeader
from moldau.replication.partition import Partition
from moldau.runtime.ports import Tasks

log = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST_MAX = 500
"""So that neither side takes more than a few milliseconds to read, write or act on one."""
RETRY_PAUSE_S = 0.05


class Wanted(NamedTuple):
    topic_id: UUID
    partition: int
    wish: InSyncWish


class Decided(NamedTuple):
    """What the controller says to one wish; the state is the partition's as it is then."""

    error: ErrorCode
    state: PartitionState | None


Ask = Callable[[Sequence[Wanted]], Awaitable[Sequence[Decided] | None]]
"""Asks the controller; None where it cannot be asked now."""


class InSyncSets:
    def __init__(self, tasks: Tasks, ask: Ask) -> None:
        self._tasks = tasks
        self._ask = ask
        self._wanted: dict[Partition, None] = {}
        self._is_asking = False
        self._is_closed = False
        self.shrinks = self.growths = 0

    def want(self, partition: Partition) -> None:
        """A partition's leader has a wish."""
        self._wanted[partition] = None
        if not self._is_asking and not self._is_closed:
            self._is_asking = True
            self._tasks.spawn(self._run(), name="in-sync sets")

    def close(self) -> None:
        self._is_closed = True
        self._wanted.clear()

    async def _run(self) -> None:
        try:
            while self._wanted and not self._is_closed:
                await self._tasks.sleep(0)  # what is wished in the same turn goes with the same request
                if not await self._ask_once():
                    await self._tasks.sleep(RETRY_PAUSE_S)
        finally:
            self._is_asking = False

    async def _ask_once(self) -> bool:
        asked: list[tuple[Partition, PartitionLeader]] = []
        sizes: list[int] = []
        wanted: list[Wanted] = []
        for partition in list(self._wanted)[:PARTITIONS_PER_REQUEST_MAX]:
            del self._wanted[partition]
            leader = partition.leader
            if leader is not None and leader.has_wish:
                asked.append((partition, leader))
                sizes.append(len(leader.state.isr))
                place = partition.topic_partition.partition
                wanted.append(Wanted(partition.topic_id, place, leader.take_wish()))
        if not asked:
            return True
        decided = await self._ask(wanted)
        if decided is None:
            for partition, leader in asked:
                leader.unanswered()
                if partition.leader is leader and leader.has_wish:
                    self._wanted[partition] = None
            return False
        for (partition, leader), size, answer in zip(asked, sizes, decided, strict=True):
            self._count(size, answer)
            partition.in_sync_answered(leader, answer.error, answer.state)
            if answer.error:
                log.info("another in-sync set of %s: %s", partition.topic_partition, answer.error.name)
        return True

    def _count(self, size_before: int, answer: Decided) -> None:
        """`size_before`: when it was asked for. The leader may have heard of the change before this answer came."""
        if answer.state is not None:
            difference = len(answer.state.isr) - size_before
            self.growths += difference > 0
            self.shrinks += difference < 0
