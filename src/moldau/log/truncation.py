"""Cutting off the end of a log, as a follower does whose leader has another history (KIP-101).

The cut is between batches: one that reaches over the offset goes whole, so the log may end somewhat before it. The
order of the steps makes a crash harmless at any point:
1. the recovery point goes down to the new end, and the checkpoint with it: what is written there later is not
   taken for what was synced there before;
2. segments go from the last one on, so what a crash leaves is a beginning of the old log;
3. the cut is synced before anyone appends: nothing that was cut off comes back beside what is new.

Producers are brought back to what they were at the cut, by the newest snapshot before it and the batches behind
that. Nobody appends meanwhile, which is the caller's to see to; readers may go on.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.log import names
from moldau.log.flush import Flusher
from moldau.log.index import read_waiting
from moldau.log.producers import Producers
from moldau.log.removal import Removal
from moldau.log.replay import replay
from moldau.log.segment import Segment, SegmentCut
from moldau.log.segments import Segments
from moldau.log.snapshots import BadSnapshot, read_snapshot
from moldau.runtime.ports import Disk, Runtime

if TYPE_CHECKING:
    from moldau.log.log import Log

logger = logging.getLogger(__name__)

Checkpoint = Callable[["Log"], Awaitable[None]]
"""Writes a log's recovery point and start as they are now: `LogManager.write_checkpoints_of`."""


class Cut(NamedTuple):
    """Where a log is to end, and what it is then."""

    next_offset: int
    base_offset: int
    """Of the segment in which it ends; of the oldest one that goes whole, where nothing of it stays."""
    stays: SegmentCut | None
    """What stays of that segment; None: a new one begins."""
    producers: Producers
    snapshot_offset: int
    """The newest snapshot's that is right still; -1 where there is none."""
    snapshots_gone: Sequence[int]


class Truncation:
    def __init__(self, log: Log, flusher: Flusher, removal: Removal, runtime: Runtime) -> None:
        self._log = log
        self._flusher = flusher
        self._removal = removal
        self._runtime = runtime

    async def to(self, offset: int, checkpoint: Checkpoint) -> None:
        log = self._log
        self._check()
        async with log.reshaping:
            if offset < log.log_start_offset:
                await self._begin_anew(offset, checkpoint)
            elif offset < log.next_offset:
                cut = await self._look(find_cut, offset)
                if cut.next_offset < log.log_start_offset:  # the batch in which the log begins goes too
                    cut = await self._look(whole_cut, log.log_start_offset)
                await self._carry_out(cut, checkpoint)
            else:
                # A leader that took over here and was replaced before it wrote anything; or a cut that failed halfway.
                log.epochs.truncate_from_end(log.next_offset)
                log.segments.active.log  # noqa: B018 (opening creates it)
                await log.until(self._flusher.write)

    async def fully(self, offset: int, checkpoint: Checkpoint) -> None:
        self._check()
        async with self._log.reshaping:
            await self._begin_anew(offset, checkpoint)

    def _check(self) -> None:
        if self._log.failure is not None:
            raise self._log.failure.with_traceback(None)
        self._log.reshaping.stop_compaction()

    async def _begin_anew(self, offset: int, checkpoint: Checkpoint) -> None:
        start_before = self._log.log_start_offset
        await self._carry_out(await self._look(whole_cut, offset), checkpoint)
        if offset != start_before:  # else a restart would drop what is appended before the old start
            await checkpoint(self._log)

    async def _look(self, look: Callable[[Disk, str, Segments, int], Cut], offset: int) -> Cut:
        log, runtime = self._log, self._runtime
        await log.until(
            self._flusher.write
        )  # so that all snapshots lie there, and no old segment waits for a sync
        return await runtime.tasks.in_thread(look, runtime.disk, log.folder, log.segments.copy(), offset)

    async def _carry_out(self, cut: Cut, checkpoint: Checkpoint) -> None:
        log, flusher = self._log, self._flusher
        flusher.hold(cut.next_offset)
        log.reshaping.cut_off(cut.next_offset)
        try:
            await checkpoint(self._log)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            flusher.when_quiet(lambda: self._cut(cut, done))
            await done
        finally:
            flusher.release(log.next_offset)
            if log.segments.active.size:
                flusher.queue(log.segments.active.sync)
            flusher.queue_folder_sync()
        await log.flush()

    def _cut(self, cut: Cut, done: asyncio.Future[None]) -> None:
        """On the loop, at once. OSError leaves a log that is whole, and longer than asked for: try again."""
        log, segments = self._log, self._log.segments
        if log.failure is not None:
            done.set_exception(log.failure)
            return
        gone: list[str] = []
        end_offset, error = self._cut_segments(cut, gone)
        try:
            log.producing.aborted.cut_off(end_offset, segments.bases)
        except OSError as failure:  # it would hide what is written there later; a start makes it anew
            log.fail(failure)
            error = failure
        start_offset = end_offset if segments.first_base_offset == end_offset else log.log_start_offset
        log.cut_back(start_offset, end_offset, cut.producers, cut.snapshot_offset)
        self._removal.later(gone, log.config.file_delete_delay_ms)
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _cut_segments(self, cut: Cut, gone: list[str]) -> tuple[int, OSError | None]:
        """Where the log ends now, and why it is longer than asked for, if it is; files that are no longer part of it
        are added to `gone`."""
        log, segments = self._log, self._log.segments
        end_offset = log.next_offset
        try:
            gone += self._drop_snapshots(cut)
            while segments.active.base_offset > cut.base_offset:
                end_offset = segments.remove_last()
                gone += names.deleted_files(end_offset)
            if cut.stays is not None:
                segments.active.cut(cut.stays)
            else:
                gone += names.deleted_files(segments.remove_last())
                now_ms = self._runtime.clock.wall_ms()
                segments.begin(Segment.new(self._runtime.disk, log.folder, cut.next_offset, now_ms))
            end_offset = cut.next_offset
            segments.active.log  # noqa: B018 (opening creates it: an empty log is known by its segment)
        except OSError as error:
            return end_offset, error
        return end_offset, None

    def _drop_snapshots(self, cut: Cut) -> list[str]:
        unwritten = [names.offset_of(name, names.SNAPSHOT) for name in self._flusher.unwritten]
        later = [offset for offset in unwritten if offset is not None and offset > cut.next_offset]
        return [
            name for offset in [*cut.snapshots_gone, *later] for name in self._removal.drop_snapshot(offset)
        ]


def find_cut(disk: Disk, folder: str, segments: Segments, offset: int) -> Cut:
    """How to cut a log off at an offset that lies in it. Blocks: give it a copy of the segments, in a thread."""
    segment = segments.at(offset)
    batch = segment.find(offset, read_waiting)
    position = segment.size if batch is None else batch.position
    next_offset = offset if batch is None else min(offset, batch.header.base_offset)
    stays = segment.look_at_cut(position, next_offset, read_waiting) if position else None
    snapshots = _snapshots(disk, folder)
    gone = [found for found in snapshots if found > next_offset]
    snapshot_offset, producers = _producers_at(disk, folder, snapshots[: len(snapshots) - len(gone)])
    first = max(0, bisect_right(segments.bases, snapshot_offset) - 1)
    before = (segments.by_number(index) for index in range(first, len(segments)))
    replay(before, snapshot_offset, next_offset, producers)
    return Cut(next_offset, segment.base_offset, stays, producers, snapshot_offset, gone)


def whole_cut(disk: Disk, folder: str, segments: Segments, offset: int) -> Cut:
    """How to let a log begin anew at an offset, with nothing of what it holds. Blocks."""
    gone = _snapshots(disk, folder)
    return Cut(offset, segments.first_base_offset, None, Producers(), -1, gone)


def _snapshots(disk: Disk, folder: str) -> list[int]:
    offsets = (names.offset_of(name, names.SNAPSHOT) for name in disk.list(folder))
    return sorted(offset for offset in offsets if offset is not None)


def _producers_at(disk: Disk, folder: str, snapshots: list[int]) -> tuple[int, Producers]:
    """The producers of the newest good one of these snapshots, and its offset."""
    for offset in reversed(snapshots):
        path = f"{folder}/{names.file_name(offset, names.SNAPSHOT)}"
        try:
            return offset, Producers(read_snapshot(disk.read(path), offset))
        except BadSnapshot as damage:
            logger.warning("%s is passed over: %s", path, damage)
    return -1, Producers()
