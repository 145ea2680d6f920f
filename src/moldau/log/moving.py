"""One log on its way to another data folder of its broker, while it serves (KIP-113).

A copy of the log, the *future* log, grows in `<topic>-<partition>.<id>-future` of the other folder: batch by batch as
they are, in the same segments, checked on the way. Where the end of the log is cut off or its start moves, the copy
follows. When it has caught up, the log goes on in the copy's folder. Kafka's `ReplicaAlterLogDirsThread` and
`LogManager.replaceCurrentWithFutureLog`.

The order of the steps makes a crash harmless at any point:
1. the copy is synced and checkpointed, with the producers as the log knows them;
2. what came meanwhile is copied and the copy gets the log's name, in one turn of the loop, so that nothing is appended
   in between; from then on appends go there;
3. only when that name and all that the copy holds are durable does the old folder lose its name.
A start may find both folders in step 3: the one with the newer epoch, or the longer one, has it all, and of two that
have the same the new one is marked (`doubles`). Until the old folder has lost its name nobody cuts off the log's end.

An error of the other folder, or a damaged batch, ends the move and leaves the log as it is. The log is not compacted
meanwhile (`Reshaping.is_moving`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from moldau.base.errors import KafkaError
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.epochs import LeaderEpochs
from moldau.log.flush import FLUSH_NEVER
from moldau.log.folder import DataFolder
from moldau.log.index import read_waiting
from moldau.log.log import Log
from moldau.log.scan import DamagedSegment
from moldau.log.segments import Segments
from moldau.log.snapshots import BadSnapshot, write_snapshot
from moldau.records.batch import LENGTH_AND_BEFORE_BYTES
from moldau.runtime.ports import Disk, Runtime

logger = logging.getLogger(__name__)

SLICE_BYTES = 262_144
"""Read, checked and written before others get their turn."""
BATCHES_PER_TURN = 400
UNSYNCED_BYTES_MAX = 16 * 1024 * 1024
"""Written between two syncs: a slow disk must not have to take gigabytes at once, while the loop waits for it."""
LAST_BYTES_MAX = SLICE_BYTES
"""Copied in the turn in which the log changes its folder."""
ATTEMPTS_MAX = 5
"""At reading a segment that cannot be read: it may have been removed, or its indexes be mended, meanwhile."""
WAIT_S = 0.1
_LARGEST = 2**31 - 1


class CannotMove(Exception):
    """The move is given up: why."""


class Piece(NamedTuple):
    """A part of a segment of the log, from a batch on."""

    base_offset: int
    position: int
    data: bytes
    is_last_segment: bool
    snapshot: bytes | None
    """The producers where the segment begins, if it is read from its beginning on."""


@dataclass(slots=True)
class Place:
    """How far the copy is: in which segment of the log, and where in it."""

    base_offset: int
    position: int


class Move:
    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        copy: Log,
        source: DataFolder,
        target: DataFolder,
        checkpoint: Callable[[Log], Awaitable[None]],
        spend: Callable[[int], Awaitable[None]],
        on_switched: Callable[[Move], object],
    ) -> None:
        """`checkpoint` writes those of the copy's folder; `spend` waits until so many bytes may be copied;
        `on_switched` is called in the turn in which the log has changed its folder."""
        self._runtime = runtime
        self.log = log
        self.copy = copy
        self.source = source
        self.target = target
        self._checkpoint = checkpoint
        self._spend = spend
        self._on_switched = on_switched
        self._place: Place | None = None
        self._cut_to: int | None = None
        """Where the log's end was cut off since the copy was last brought into line."""
        self._unsynced_bytes = 0
        self._start_written = 0
        """Where the log begins by the checkpoints of the new folder."""
        self.is_switched = False
        """The log lies in the other folder."""
        self.is_deleted = False
        """Its topic was deleted since."""
        self.task: asyncio.Task[None] | None = None
        self.old_folder = log.folder
        self.old_recovery_point = 0
        """Of the old folder, while a start may still have to go by it."""
        log.on_cut = self._note_cut
        if copy.next_offset > log.segments.first_base_offset:  # taken up again
            self._note_cut(agreed_offset(copy, log))

    @property
    def offset_lag(self) -> int:
        return max(0, self.log.next_offset - self.copy.next_offset)

    def _note_cut(self, next_offset: int) -> None:
        self._cut_to = next_offset if self._cut_to is None else min(self._cut_to, next_offset)
        self._place = None

    def begin_anew(self) -> None:
        """What the copy holds from an earlier life is not of the log as it is now."""
        self._note_cut(-1)

    # Copying

    async def run(self) -> None:
        """Until the log lies in the other folder. CannotMove or OSError: it is where it was."""
        async with self.log.reshaping:  # a compaction that was stopped is at its end
            pass
        while not self.is_switched:
            await self._catch_up()
            async with self.log.reshaping:  # nobody cuts off the end, or takes segments out, until it is done
                if self._cut_to is None:
                    await self._make_durable()
                    await self.log.settle_indexes()
                    await self._switch()
                    await self._leave_old()

    async def _catch_up(self) -> None:
        attempts = 0
        while True:
            try:
                await self._line_up()
                if not await self._copy_some():
                    return
                attempts = 0
            except (FileNotFoundError, DamagedSegment) as error:
                # Retention was faster, or an index is wrong.
                self._check()
                self._place = None
                attempts += 1
                if attempts == ATTEMPTS_MAX:
                    raise CannotMove(str(error)) from error
                if isinstance(error, DamagedSegment):
                    await self.log.mend_indexes(error)
                await self._runtime.tasks.sleep(WAIT_S)

    def _check(self) -> None:
        for one in (self.log, self.copy):
            if one.failure is not None:
                raise one.failure.with_traceback(None)

    async def _line_up(self) -> None:
        """The copy holds nothing that the log does not, and begins where it does."""
        self._check()
        log, copy = self.log, self.copy
        cut_to, self._cut_to = self._cut_to, None
        first = log.segments.first_base_offset
        is_empty = self._is_empty
        is_none_of_it = copy.next_offset < first or (cut_to is not None and cut_to <= first)
        if is_none_of_it or (is_empty and copy.next_offset != first and self._place is None):
            await copy.truncate_fully_and_start_at(first, self._checkpoint)
        elif cut_to is not None and cut_to < copy.next_offset:
            await copy.truncate_to(cut_to, self._checkpoint)
        if copy.log_start_offset < log.log_start_offset <= copy.next_offset:
            copy.delete_records_before(log.log_start_offset)

    @property
    def _is_empty(self) -> bool:
        return len(self.copy.segments) == 1 and self.copy.segments.active.size == 0

    async def _copy_some(self) -> bool:
        """Whether there was something to copy."""
        piece = await self._runtime.tasks.in_thread(
            read_on,
            self._runtime.disk,
            self.log.folder,
            self.log.segments.copy(),
            self._place,
            self.copy.next_offset,
            SLICE_BYTES,
        )
        if self._cut_to is not None:
            return True
        self._check()
        self._go_to(piece)
        if not piece.data:
            return not piece.is_last_segment
        await self._spend(len(piece.data))
        position = 0
        while position < len(piece.data) and self._cut_to is None:
            self._check()
            taken = self._take(memoryview(piece.data)[position:])
            position += taken
            if not taken:
                break
            await self._runtime.tasks.sleep(0)
        if self._unsynced_bytes >= UNSYNCED_BYTES_MAX:
            self._unsynced_bytes = 0
            await self.copy.flush()
        return True

    def _go_to(self, piece: Piece) -> None:
        """The copy goes on where the piece is: in a new segment where the log does."""
        copy = self.copy
        is_next = self._place is None or self._place.base_offset != piece.base_offset
        if is_next and piece.position == 0 and (piece.data or piece.is_last_segment):
            if copy.segments.active.size and copy.next_offset <= piece.base_offset:
                copy.next_offset = piece.base_offset  # compaction may have taken what lies before
                copy.roll(self._runtime.clock.wall_ms())
            elif self._is_empty and copy.segments.active.base_offset != piece.base_offset:
                raise FileNotFoundError(errno.ENOENT, "the log begins later by now", self.log.folder)
            if piece.snapshot is not None and copy.next_offset == piece.base_offset:
                self._take_snapshot(piece.snapshot)
        self._place = Place(piece.base_offset, piece.position)

    def _take_snapshot(self, content: bytes) -> None:
        try:
            self.copy.take_snapshot(content)
        except BadSnapshot as damage:  # the copy has one of its own
            logger.warning("a snapshot of %s is not copied: %s", self.log, damage)

    def _take(self, data: memoryview) -> int:
        """Append whole batches to the copy: as many as a turn has time for."""
        assert self._place is not None
        try:
            taken = self.copy.append_fetched(
                data, self._runtime.clock.wall_ms(), BATCHES_PER_TURN
            ).taken_bytes
        except KafkaError as error:
            raise CannotMove(f"{self.log.folder} is damaged: {error}") from error
        self._place.position += taken
        self._unsynced_bytes += taken
        return taken

    # Changing over

    async def _make_durable(self) -> None:
        """The copy is on the disk up to here, with all that a start must know of it."""
        copy = self.copy
        await self._runtime.tasks.in_thread(self._mark)
        while not self._copy_last():
            await self._copy_rest()
        offset = copy.next_offset
        copy.take_snapshot(write_snapshot(self.log.producing.state.entries()))
        await copy.flush()
        if copy.last_flushed_offset < offset:
            raise OSError(errno.ENOSPC, "there is no room for some of its small files", copy.folder)
        self._start_written = copy.log_start_offset
        await self._checkpoint(copy)

    def _mark(self) -> None:
        """For a start that finds both. Blocks."""
        disk = self._runtime.disk
        disk.write_atomic(f"{self.copy.folder}/{names.MOVED_HERE}", b"")
        with suppress(FileNotFoundError):  # it came by a move, too, which was not seen to its end
            disk.remove(f"{self.log.folder}/{names.MOVED_HERE}")

    async def _switch(self) -> None:
        while not self.is_switched:
            await self._copy_rest()
            await self.copy.write_queued()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.log.between_flushes(partial(self._try_switch, done))
            await done

    async def _copy_rest(self) -> None:
        while await self._copy_some():
            pass

    def _try_switch(self, done: asyncio.Future[None]) -> None:
        if done.done():
            return  # the move was given up
        try:
            self._check()
            if self._copy_last() and not self.copy.is_flushing:
                self._change_over()
        except (OSError, CannotMove) as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def _copy_last(self) -> bool:
        """Whether the copy has all of the log now."""
        active, place = self.log.segments.active, self._place
        if place is None or place.base_offset != active.base_offset:
            return False
        length = active.size - place.position
        if length > LAST_BYTES_MAX:
            return False
        if length:
            try:
                data = active.log.pread_nowait(length, place.position)
            except BlockingIOError:
                return False
            self._take(memoryview(data))
        if self.copy.log_start_offset < self.log.log_start_offset:
            self.copy.delete_records_before(self.log.log_start_offset)
        if active.size != place.position:
            return False
        if self.copy.next_offset != self.log.next_offset:
            raise CannotMove(f"{self.log} does not end where its last batch does, at {self.copy.next_offset}")
        return True

    def _change_over(self) -> None:
        """On the loop, at once: nothing is appended in between. OSError: nothing has changed."""
        log, copy = self.log, self.copy
        path = f"{self.target.path}/{log.topic_partition}"
        if self._runtime.disk.exists(path):
            raise FileExistsError(errno.EEXIST, "there is a folder of that name already", path)
        self._runtime.disk.rename(copy.folder, path)
        copy.relocate(path)
        self.is_switched = True
        self.old_recovery_point = log.last_flushed_offset
        self._old_segments = log.go_on_in(copy, self.target.name_sync())
        log.on_cut = None
        self._on_switched(self)

    async def _leave_old(self) -> None:
        """Take the name from the old folder, when the new one is durable. It goes also where its topic does."""
        log, runtime = self.log, self._runtime
        while not self.is_deleted:
            try:
                await log.flush()
                start = log.log_start_offset
                if self._start_written != start:
                    await self._checkpoint(log)
                    self._start_written = start
                break
            except OSError as error:
                if log.failure is not None and not self.is_deleted:
                    # The disk has failed: what the old folder holds may be all that there is.
                    raise CannotMove(f"{log.folder} has failed right after the move: {error}") from error
                await runtime.tasks.sleep(WAIT_S)
        name = names.deleted_folder(log.topic_partition, runtime.random.uuid())
        target = f"{self.source.path}/{name}"
        runtime.disk.rename(self.old_folder, target)
        self.old_folder = target
        self._old_segments.relocate(target)
        await runtime.tasks.in_thread(runtime.disk.sync_folder, self.source.path)
        with suppress(OSError):  # alone it says nothing
            await runtime.tasks.in_thread(runtime.disk.remove, f"{log.folder}/{names.MOVED_HERE}")


def copy_config(config: TopicConfig) -> TopicConfig:
    """The settings of a copy: its segments are those of the log, and it is synced when the move wants it."""
    return replace(
        config,
        segment_bytes=_LARGEST,
        segment_ms=FLUSH_NEVER,
        max_compaction_lag_ms=FLUSH_NEVER,
        segment_jitter_ms=0,
        segment_index_bytes=_LARGEST,
        flush_messages=FLUSH_NEVER,
        flush_ms=FLUSH_NEVER,
    )


def agreed_offset(copy: Log, log: Log) -> int:
    """Up to where a copy that was left by an earlier life has what the log has, as their leader epochs tell it."""
    return _agreed(copy.epochs, log.epochs, min(copy.next_offset, log.next_offset))


def _agreed(ours: LeaderEpochs, theirs: LeaderEpochs, offset: int) -> int:
    starts = sorted({start for _, start in (*ours.entries, *theirs.entries)}, reverse=True)
    for start in starts:
        if offset > start:
            if ours.epoch_of(offset - 1) == theirs.epoch_of(offset - 1):
                return offset
            offset = start
    return offset if ours.epoch_of(offset - 1) == theirs.epoch_of(offset - 1) else 0


def read_on(
    disk: Disk, folder: str, segments: Segments, place: Place | None, offset: int, max_bytes: int
) -> Piece:
    """What follows a place of a log, or an offset where there is none: from the next segment on, at the end of one.
    Whole batches, one at least; no data at the end of the log. Blocks: give it a copy of the segments, in a thread."""
    if place is not None:
        segment, position = segments.at(place.base_offset), place.position
        if segment.base_offset != place.base_offset:
            raise FileNotFoundError(errno.ENOENT, "the segment is gone", segment.path)
    else:
        segment = segments.at(offset)
        batch = segment.find(offset, read_waiting)
        position = segment.size if batch is None else batch.position
        if batch is not None and batch.header.base_offset < offset:
            raise CannotMove(f"{segment.path}: the copy ends within the batch {batch.header.base_offset}")
    while position >= segment.size and (following := segments.after(segment)) is not None:
        segment, position = following, 0
    length = min(max_bytes, segment.size - position)
    data = segment.log.pread(length, position) if length > 0 else b""
    if len(data) >= LENGTH_AND_BEFORE_BYTES:
        first_bytes = int.from_bytes(data[8:12], "big", signed=True) + LENGTH_AND_BEFORE_BYTES
        if len(data) < first_bytes <= segment.size - position:
            data = segment.log.pread(first_bytes, position)
    snapshot = None
    if position == 0:
        try:
            snapshot = disk.read(f"{folder}/{names.file_name(segment.base_offset, names.SNAPSHOT)}")
        except FileNotFoundError:
            snapshot = None
    return Piece(segment.base_offset, position, data, segments.after(segment) is None, snapshot)
