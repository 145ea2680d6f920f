"""The logs of a broker that are on their way to another data folder: begun, taken up again, given up (KIP-113).

A log has one move at a time; asked for another folder, it gives up the one under way. As many run at once as
`num.replica.alter.log.dirs.threads` says, the others wait; together they copy no more than
`replica.alter.log.dirs.io.max.bytes.per.second`. A start takes up what it finds half done. What a move does is in
`moving`; what is answered to a client is the handler's.

Where a log that does not exist yet is to be created is remembered here too (`preferred`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.disk_errors import is_of_one_log, reason
from moldau.log.folder import DataFolder
from moldau.log.loaded import LoadedLog
from moldau.log.log import Log
from moldau.log.moving import CannotMove, Move, copy_config
from moldau.log.opening import Contents, Opened, open_logs
from moldau.log.recovery import create_log
from moldau.log.scan import DamagedSegment
from moldau.runtime.ports import Clock, Runtime, Tasks

if TYPE_CHECKING:
    from moldau.log.manager import LogManager

logger = logging.getLogger(__name__)

PREFERRED_MAX = 10_000
"""Partitions whose folder is remembered before they are created; the one that was named first is forgotten first."""
LOOK_EVERY_S = 1.0
"""While a move waits: the rate may be changed."""


class Pace:
    """How fast all moves may copy together. What one takes at once the next ones wait for."""

    def __init__(self, clock: Clock, tasks: Tasks, bytes_per_s: Callable[[], int | None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._bytes_per_s = bytes_per_s
        self._rate: int | None = None
        self._free_s = 0.0
        """When the next may copy."""

    async def spend(self, count: int) -> None:
        """Wait until so many bytes may be copied. Another rate holds at once: what was taken before is forgotten."""
        while True:
            rate, now_s = self._bytes_per_s(), self._clock.monotonic()
            if rate != self._rate:
                self._rate, self._free_s = rate, now_s
            if rate is None:
                return
            wait_s = self._free_s - now_s if rate else LOOK_EVERY_S
            if wait_s <= 0:
                self._free_s = now_s + count / rate
                return
            await self._tasks.sleep(min(LOOK_EVERY_S, wait_s))


class Moves:
    def __init__(
        self, runtime: Runtime, manager: LogManager, bytes_per_s: Callable[[], int | None], at_once: int
    ) -> None:
        self._runtime = runtime
        self._manager = manager
        self._pace = Pace(runtime.clock, runtime.tasks, bytes_per_s)
        self._limit = asyncio.Semaphore(at_once)
        self.under_way: dict[TopicPartition, Move] = {}
        self._leaving: dict[TopicPartition, Move] = {}
        """Those whose logs lie in the new folder, while the old one has its name still."""
        self.preferred: dict[TopicPartition, str] = {}
        """Paths of the folders in which logs are to be created."""

    def prefer(self, partition: TopicPartition, path: str) -> None:
        self.preferred.pop(partition, None)
        self.preferred[partition] = path
        if len(self.preferred) > PREFERRED_MAX:
            del self.preferred[next(iter(self.preferred))]

    # Beginning

    async def begin(self, log: Log, target: DataFolder) -> None:
        """Bring a log into another folder, in the background. OSError: it cannot be."""
        partition, manager = log.topic_partition, self._manager
        moving = self.under_way.get(partition)
        if moving is not None:
            if moving.target is target:
                return
            await self.give_up(partition)
        await self.left(partition)
        source = manager.folder_of(partition)
        if source is target:
            return
        if partition in target.stale:  # it says something of an earlier log of this name
            await manager.write_checkpoints_in(target)
        path = f"{target.path}/{names.future_folder(partition, self._runtime.random.uuid())}"
        start = log.segments.first_base_offset
        if partition in self.under_way:  # somebody was faster
            await self.begin(log, target)
            return
        if log.failure is not None or manager.logs.get(partition) is not log:
            return  # meanwhile
        try:
            now_ms = self._runtime.clock.wall_ms()
            loaded = create_log(self._runtime.disk, path, log.topic_id, now_ms, start)
        except OSError:
            manager.remove_later(target, path, 0)  # what there is of it: the next start would go on with it
            raise
        self._start(log, self._copy(log, path, loaded, target), source, target)

    def _copy(self, log: Log, path: str, loaded: LoadedLog, target: DataFolder) -> Log:
        manager = self._manager

        def on_failure(_log: Log, error: OSError) -> None:
            if not is_of_one_log(error):
                manager.fail_folder(target, error)

        def on_error(copy: Log, error: OSError, wanted_bytes: int) -> None:
            if is_of_one_log(error):
                copy.fail(error)
            else:
                manager.folder_error(target, error, wanted_bytes)

        config = copy_config(log.config)
        copy = Log(log.topic_partition, path, config, self._runtime, loaded, on_failure, on_error, log.aside)
        copy.reshaping.cleaned_to = log.reshaping.cleaned_to
        copy.write_created(target.name_sync())
        return copy

    def _start(self, log: Log, copy: Log, source: DataFolder, target: DataFolder) -> Move:
        async def checkpoint(_copy: Log) -> None:
            await self._manager.write_checkpoints_in(target)

        move = Move(self._runtime, log, copy, source, target, checkpoint, self._pace.spend, self._on_switched)
        self.under_way[log.topic_partition] = move
        log.reshaping.is_moving = True
        log.reshaping.stop_compaction()
        logger.info("%s moves from %s to %s", log.topic_partition, source.path, target.path)
        move.task = self._runtime.tasks.spawn(self._run(move), name=f"move {log.topic_partition}")
        return move

    # Running

    async def _run(self, move: Move) -> None:
        partition = move.log.topic_partition
        try:
            async with self._limit:
                await move.run()
        except (OSError, CannotMove, DamagedSegment) as error:
            if move.is_switched:  # the next start decides
                logger.error("%s lies in %s still: %s", partition, move.old_folder, error)
            elif self.under_way.get(partition) is move:
                why = reason(error) if isinstance(error, OSError) else str(error)
                logger.error("%s is not moved to %s: %s", partition, move.target.path, why)
                move.task = None
                self._drop(move)
        else:
            logger.info("%s lies in %s now", partition, move.target.path)
            await self._forget_old(move)

    def _on_switched(self, move: Move) -> None:
        partition = move.log.topic_partition
        del self.under_way[partition]
        self._leaving[partition] = move
        self._manager.note_moved(move.log, move.source, move.target)
        move.log.reshaping.is_moving = False

    async def _forget_old(self, move: Move) -> None:
        """The old folder has no name any more: what its checkpoints say of the log must not count, either."""
        partition = move.log.topic_partition
        del self._leaving[partition]
        move.source.stale.add(partition)
        with suppress(OSError):  # the folder's error is noted; they are written with the next ones
            await self._manager.write_checkpoints_in(move.source)
        self._manager.remove_later(move.source, move.old_folder, move.log.config.file_delete_delay_ms)

    # Giving up

    async def give_up(self, partition: TopicPartition) -> None:
        """The log stays where it is. Returns when nothing works on the copy any more."""
        move = self.under_way.get(partition)
        if move is not None and move.task is not None:
            self._drop(move)
            with suppress(asyncio.CancelledError):
                await move.task

    async def left(self, partition: TopicPartition) -> None:
        """Wait until nothing of a log is in a folder that it has left."""
        move = self._leaving.get(partition)
        if move is not None and move.task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(move.task)

    def drop(self, partition: TopicPartition) -> None:
        """The log is deleted: so is its copy, and what a move has left behind."""
        self.preferred.pop(partition, None)
        if partition in self._leaving:
            self._leaving[partition].is_deleted = True
        elif partition in self.under_way:
            self._drop(self.under_way[partition])

    def _drop(self, move: Move) -> None:
        log, copy, target = move.log, move.copy, move.target
        del self.under_way[log.topic_partition]
        if move.task is not None:
            move.task.cancel()
        log.on_cut = None
        log.reshaping.is_moving = False
        target.stale.add(log.topic_partition)
        copy.abandon()
        path = f"{target.path}/{names.deleted_folder(log.topic_partition, self._runtime.random.uuid())}"

        def leave() -> None:
            source, copy.folder = copy.folder, path
            try:
                self._runtime.disk.rename(source, path)
            except OSError as error:  # of a folder that failed
                logger.warning("%s could not be removed: %s", source, error)
                return
            self._manager.remove_later(target, path, 0, copy)

        copy.when_quiet(leave)

    # Disks

    def copies_in(self, folder: DataFolder) -> list[tuple[TopicPartition, Log]]:
        return [(partition, move.copy) for partition, move in self.under_way.items() if move.target is folder]

    def written_in(self, folder: DataFolder) -> dict[Log, int]:
        """What the folder's checkpoints tell besides its logs, with their recovery points: copies on their way into
        it, and logs that lie elsewhere by now, but for a crash."""
        copies = {copy: copy.last_flushed_offset for _, copy in self.copies_in(folder)}
        leaving = self._leaving.values()
        return copies | {move.log: move.old_recovery_point for move in leaving if move.source is folder}

    def on_folder_failed(self, folder: DataFolder, error: OSError) -> None:
        """Moves out of it and into it end."""
        for move in list(self.under_way.values()):
            if move.target is folder:
                move.copy.fail(error)
            if folder in (move.source, move.target):
                self._drop(move)

    # The start and the end

    async def take_up(self, found: Mapping[DataFolder, Contents], threads: int) -> None:
        """Go on with what an earlier life has begun. A copy of no use is removed; without its log it is left alone."""
        in_thread = self._runtime.tasks.in_thread
        for folder, contents in found.items():
            wanted = [one for one in contents.futures if self._has_log(*one)]
            some = Contents(contents.clean, contents.checkpoints, wanted)
            copies: list[Opened] = []

            def keep(one: Opened, _folder: DataFolder, copies: list[Opened] = copies) -> None:
                copies.append(one)

            await open_logs(self._runtime, folder, some, self._manager.config_of, threads, keep)
            for one in sorted(copies, key=lambda one: one.opening.folder):
                is_elsewhere = self._manager.folder_of(one.partition) is not folder
                if one.error is None and is_elsewhere and one.partition not in self.under_way:
                    self._take_up(one, folder, contents.checkpoints.cleaned_to.get(one.partition))
                else:
                    await in_thread(folder.remove_tree, one.opening.folder)

    def _has_log(self, partition: TopicPartition, path: str) -> bool:
        log = self._manager.logs.get(partition)
        if log is None:
            logger.warning("%s is a copy of a log that is in no folder: it is left alone", path)
        return log is not None and log.failure is None

    def _take_up(self, one: Opened, folder: DataFolder, cleaned_to: int | None) -> None:
        log = self._manager.logs[one.partition]
        copy = self._copy(log, one.opening.folder, one.loaded, folder)
        is_of_log = one.loaded.topic_id in (log.topic_id, None) and cleaned_to == log.reshaping.cleaned_to
        move = self._start(log, copy, self._manager.folder_of(one.partition), folder)
        if not is_of_log:  # of another topic, or from before a compaction
            move.begin_anew()

    async def close(self) -> None:
        """Stop all; the next start takes them up again."""
        for move in [*self.under_way.values(), *self._leaving.values()]:
            if move.task is not None:
                if not move.is_switched:
                    move.task.cancel()
                with suppress(asyncio.CancelledError):
                    await move.task
