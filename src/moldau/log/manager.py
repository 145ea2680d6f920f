"""The logs of a broker over its data folders: opening, creating, deleting, checkpoints, the clean end.

`open` has the folders locked and every log opened in threads (`opening`). From then on `get` and `create` are
immediate. A folder that fails, at the start or later, takes its logs with it (they are offline: every use raises
the error); the others go on, until there is none left (`LogHost.on_all_failed`). A full folder is taken up again when
there is room (`room`). What each error of a disk means is in `disk_errors`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.aside import Aside
from moldau.log.disk_errors import is_no_room, is_of_one_log, is_passing, reason
from moldau.log.folder import Checkpoints, DataFolder
from moldau.log.host import LogHost, LogSettings, Owner
from moldau.log.loaded import LoadedLog
from moldau.log.log import Log
from moldau.log.moves import Moves
from moldau.log.opening import Opened, acquire_folders, open_logs, survey
from moldau.log.recovery import create_log, unopened_log
from moldau.log.retention import Limits, look_through
from moldau.log.room import TRY_EVERY_S, RoomWatch
from moldau.log.scan import DamagedSegment
from moldau.runtime.ports import Runtime

logger = logging.getLogger(__name__)

CLOSES_AT_ONCE = 16
LOGS_PER_TURN = 500
"""Looked at before others get their turn of the loop: a few milliseconds."""
FIRST_RETENTION_CHECK_S = 30.0
"""A broker that is restarted often must come to it too."""
PRODUCER_CHECK_INTERVAL_S = 600.0
"""Kafka's `producer.id.expiration.check.interval.ms`."""


class LogManager:
    def __init__(
        self,
        runtime: Runtime,
        folders: Sequence[str],
        owner: Owner,
        host: LogHost,
        settings: Callable[[], LogSettings] = LogSettings,
    ) -> None:
        self._runtime = runtime
        self._aside = Aside(runtime.tasks)
        self._owner = owner
        self._host = host
        self._settings = settings
        self.folders = [DataFolder(runtime.disk, path) for path in folders]
        self.logs: dict[TopicPartition, Log] = {}
        self.checkpointed_high_watermarks: dict[TopicPartition, int] = {}
        self._folder_of: dict[TopicPartition, DataFolder] = {}
        self._leaving: dict[TopicPartition, asyncio.Event] = {}
        """Deleted logs whose folder is still written to."""
        self._unmade: dict[TopicPartition, tuple[uuid.UUID | None, TopicConfig | None]] = {}
        """Logs that could not be created."""
        self._room = RoomWatch(runtime, self._on_room, self.fail_folder)
        self._background: list[asyncio.Task[None]] = []
        self._checkpointing = asyncio.Lock()
        moves_at_once = settings().moves_at_once or len(folders)
        self.moves = Moves(runtime, self, lambda: settings().move_bytes_per_s, moves_at_once)

    # Opening

    async def open(self) -> None:
        """DataFolderError says, for people, why a folder cannot be used."""
        try:
            await acquire_folders(self._runtime, self.folders, self._owner)
            await self._open_logs()
        except BaseException:
            self.release()
            raise
        spawn = self._runtime.tasks.spawn
        self._background = [
            spawn(self._checkpoint_regularly(), name="log checkpoints"),
            spawn(self._expire_regularly(), name="producer expiration"),
            spawn(self._retain_regularly(), name="retention"),
        ]

    async def _open_logs(self) -> None:
        found = await survey(self._runtime, self.folders, self._host.topic_id_of, self._host.config_of)

        def keep(one: Opened, folder: DataFolder) -> None:
            log = self._keep(one.partition, one.opening.folder, one.loaded, folder)
            cleaned_to = found[folder].checkpoints.cleaned_to.get(one.partition)
            # Where it lies behind the end, that was lost: all is dirty.
            if cleaned_to is not None and cleaned_to <= log.next_offset:
                log.reshaping.cleaned_to = cleaned_to
            if one.error is not None:
                logger.error("%s is offline: %s", log.topic_partition, one.error)
                log.begin_offline(one.error)

        spawn = self._runtime.tasks.spawn
        threads = self._settings().recovery_threads
        tasks = []
        for folder, contents in found.items():
            for partition, _ in contents.logs:
                if (offset := contents.checkpoints.high_watermarks.get(partition)) is not None:
                    self.checkpointed_high_watermarks[partition] = offset
            work = open_logs(self._runtime, folder, contents, self.config_of, threads, keep)
            tasks.append(spawn(work, name=f"open logs of {folder.path}"))
        for task in tasks:
            await task
        await self.moves.take_up(found, threads)
        for folder, contents in found.items():
            here = {partition for partition, _ in (*contents.logs, *self.moves.copies_in(folder))}
            folder.stale = contents.checkpoints.partitions - here
        if any(contents.checkpoints.recovery_points is None for contents in found.values()):
            await self._try_write_checkpoints()  # until then any gap in a log passes for compaction's

    def _keep(self, partition: TopicPartition, path: str, loaded: LoadedLog, folder: DataFolder) -> Log:
        config = self.config_of(partition.topic)
        log = Log(
            partition, path, config, self._runtime, loaded, self._log_failed, self._disk_error, self._aside
        )
        self.logs[partition] = log
        self._folder_of[partition] = folder
        folder.log_count += 1
        return log

    # Logs

    def config_of(self, topic: str) -> TopicConfig:
        return self._host.config_of(topic)

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, config: TopicConfig | None = None
    ) -> Log:
        """A new, empty log in the folder that has the fewest; the one that exists where there is one.

        Where no folder takes it, it is offline. It is made as soon as there is room, or descriptors, if that is what
        is lacking; else the next start tries again.
        """
        log = self.logs.get(partition)
        if log is not None:
            return log
        failure: OSError = OSError(errno.EIO, "all data folders have failed")
        for folder in self._places_for(partition):
            if partition in folder.stale:  # `vacated` could not write them
                failure = OSError(errno.ENOSPC, "its checkpoints could not be written", folder.path)
                continue
            try:
                return self._create_in(folder, partition, topic_id, config)
            except OSError as error:
                failure = error
                self.creation_error(folder, error)
        log = self.create_offline(partition, failure)
        logger.error("%s is offline, it could not be created: %s", partition, reason(failure))
        self._unmade[partition] = (topic_id, config)
        if is_passing(failure):
            self._runtime.tasks.spawn(self._make_later(partition), name=f"make {partition}")
        return log

    def _places_for(self, partition: TopicPartition) -> list[DataFolder]:
        """The folders that may take a new log: the one that was asked for, else all, the emptiest first."""
        working = [folder for folder in self.folders if folder.failure is None]
        preferred = self.moves.preferred.pop(partition, None)
        wanted = [folder for folder in working if folder.path == preferred]
        return wanted or sorted(working, key=lambda folder: folder.log_count)

    def folder_of(self, partition: TopicPartition) -> DataFolder:
        return self._folder_of[partition]

    def _create_in(
        self,
        folder: DataFolder,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: TopicConfig | None,
    ) -> Log:
        path = f"{folder.path}/{partition}"
        loaded = create_log(self._runtime.disk, path, topic_id, self._runtime.clock.wall_ms())
        log = self._keep(partition, path, loaded, folder)
        if config is not None:
            log.configure(config)
        log.write_created(folder.name_sync())
        return log

    def create_offline(self, partition: TopicPartition, error: OSError | None = None) -> Log:
        """A log that cannot be used: it lies, or would lie, in a folder that cannot."""
        folder = next((folder for folder in self.folders if folder.failure is not None), self.folders[0])
        path = f"{folder.path}/{partition}"
        log = self._keep(partition, path, unopened_log(self._runtime.disk, path, 0, 0), folder)
        log.begin_offline(error or folder.failure or OSError(errno.EIO, "the log is offline", path))
        return log

    @property
    def has_failed_folders(self) -> bool:
        return any(folder.failure is not None for folder in self.folders)

    def delete(self, partition: TopicPartition) -> None:
        """The log is gone at once; its files go after `file.delete.delay.ms`, or at the next start.

        A thread that is just writing to them is let finish before the folder is renamed: it knows its files by
        their names, and would disturb a new log of the same name. `vacated` waits for it.
        """
        self.moves.drop(partition)
        log = self.logs.pop(partition, None)
        if log is None:
            return
        folder = self._folder_of.pop(partition)
        folder.log_count -= 1
        folder.stale.add(partition)
        self._unmade.pop(partition, None)
        log.abandon()
        self._leaving[partition] = left = asyncio.Event()
        target = f"{folder.path}/{names.deleted_folder(partition, self._runtime.random.uuid())}"

        def leave() -> None:
            del self._leaving[partition]
            left.set()
            source, log.folder = log.folder, target
            try:
                self._runtime.disk.rename(source, target)
            except (
                OSError
            ) as error:  # of a folder that failed: its next start finds out that the topic is gone
                logger.warning("%s could not be removed: %s", source, error)
                return
            self.remove_later(folder, target, log.config.file_delete_delay_ms, log)

        log.when_quiet(leave)

    def set_aside(self, partition: TopicPartition) -> bool:
        """A log that cannot be this partition's: it is kept under another name, as Kafka keeps strays. Where it cannot
        be renamed it is offline where it is, and in the way of a new one.
        """
        self.moves.drop(partition)
        log, folder = self.logs[partition], self._folder_of[partition]
        name = names.stray_folder(partition, self._runtime.random.uuid())
        try:
            self._runtime.disk.rename(log.folder, f"{folder.path}/{name}")
        except OSError as error:
            logger.error("%s cannot be set aside, and is offline: %s", log.folder, reason(error))
            log.begin_offline(error)
            return False
        del self.logs[partition], self._folder_of[partition]
        folder.log_count -= 1
        folder.stale.add(partition)
        log.abandon()
        whose = "does not say" if log.topic_id is None else f"says {names.id_text(log.topic_id)}"
        logger.error(
            "%s cannot be of the topic of this name: it is kept as %s, and not served (of its topic's id it %s)",
            log.folder,
            name,
            whose,
        )
        return True

    async def vacated(self, partition: TopicPartition) -> None:
        """Wait until a deleted log's folder is free for a new one, and no checkpoint says where the old one began."""
        while (left := self._leaving.get(partition)) is not None:
            await left.wait()
        await self.moves.left(partition)
        for folder in self.folders:
            if partition in folder.stale and folder.failure is None:
                with suppress(OSError):  # the folder's error is noted; `create` does without the folder
                    await self.write_checkpoints_in(folder)

    def remove_later(self, folder: DataFolder, path: str, delay_ms: int, log: Log | None = None) -> None:
        """Remove a log's folder, when whoever reads its files has had time to finish.

        The files of a `log` are closed before: the disk has their room again only when nobody has them open.
        """
        tasks = self._runtime.tasks

        def close_and_remove() -> None:
            if log is not None:
                log.close_files()
            folder.remove_tree(path)

        async def remove() -> None:
            await tasks.sleep(delay_ms / 1000)
            await tasks.in_thread(close_and_remove)
            if log is not None:
                log.take_apart()

        tasks.spawn(remove(), name=f"remove {path}")

    def note_moved(self, log: Log, source: DataFolder, target: DataFolder) -> None:
        """A log lies in another folder now."""
        self._folder_of[log.topic_partition] = target
        source.log_count -= 1
        target.log_count += 1

    # Errors of the disk

    def _disk_error(self, log: Log, error: OSError, wanted_bytes: int) -> None:
        """A write to a log went wrong, without doubt on what the log holds."""
        folder = self._folder_of.get(log.topic_partition)
        if folder is None or log.failure is not None:
            return
        if is_of_one_log(error):
            log.fail(error)
        else:
            self.folder_error(folder, error, wanted_bytes)

    def creation_error(self, folder: DataFolder, error: OSError) -> None:
        """A log could not be created in a folder: what that says of the folder, if anything."""
        if not is_of_one_log(error):
            self.folder_error(folder, error)

    def folder_error(self, folder: DataFolder, error: OSError, wanted_bytes: int = 0) -> None:
        if is_no_room(error):
            self._room.note(folder, error, wanted_bytes)
        elif is_passing(error):
            logger.warning("data folder %s: %s", folder.path, error)
        else:
            self.fail_folder(folder, error)

    def _log_failed(self, log: Log, error: OSError) -> None:
        folder = self._folder_of.get(log.topic_partition)
        if folder is not None:
            if not is_of_one_log(error):
                self.fail_folder(folder, error)
            elif folder.failure is None:
                logger.error("%s is offline: %s", log.topic_partition, error)
            self._host.on_failure(log, error)

    def fail_folder(self, folder: DataFolder, error: OSError) -> None:
        if folder.failure is not None:
            return
        folder.failure = error
        logger.error(
            "data folder %s has failed: %s. Its %d partitions are offline until the next start",
            folder.path,
            error,
            folder.log_count,
        )
        self.moves.on_folder_failed(folder, error)
        for partition, log in list(self.logs.items()):
            if self._folder_of[partition] is folder:
                log.fail(error)
        if all(folder.failure is not None for folder in self.folders):
            self._host.on_all_failed(error)

    def _on_room(self, folder: DataFolder) -> None:
        """What could not be written is written now."""
        for partition in self._unmade:
            if self._folder_of[partition] is folder:
                self._runtime.tasks.spawn(self._make(partition), name=f"make {partition}")
        for partition, log in list(self.logs.items()):
            if self._folder_of[partition] is folder:
                log.write_unwritten()

    async def _make_later(self, partition: TopicPartition) -> None:
        await self._runtime.tasks.sleep(TRY_EVERY_S)
        await self._make(partition)

    async def _make(self, partition: TopicPartition) -> None:
        """A log that there was no room for."""
        await self.vacated(partition)
        if partition not in self._unmade:
            return  # its topic was deleted meanwhile
        topic_id, config = self._unmade.pop(partition)
        del self.logs[partition]
        self._folder_of.pop(partition).log_count -= 1
        log = self.create(partition, topic_id, config)
        if log.failure is None:
            self._host.on_made(log)

    # Retention

    async def _retain_regularly(self) -> None:
        await self._runtime.tasks.sleep(min(FIRST_RETENTION_CHECK_S, self._settings().retention_interval_s))
        while True:
            await self.enforce_retention()
            await self._runtime.tasks.sleep(self._settings().retention_interval_s)

    async def enforce_retention(self) -> None:
        """Let every log begin behind what its topic no longer keeps, and remove the segments before that.

        What goes wrong with one log is logged, and tried again the next time.
        """
        await self._for_each_log(self._expire_records)
        await self._try_write_checkpoints()  # without room for them what is old goes all the same
        await self._for_each_log(Log.remove_old_segments)

    async def _for_each_log(self, work: Callable[[Log], Awaitable[object]]) -> None:
        for number, log in enumerate(list(self.logs.values()), 1):
            if number % LOGS_PER_TURN == 0:
                await self._runtime.tasks.sleep(0)
            if log.failure is None and not log.reshaping.locked():  # else it is being compacted
                try:
                    async with log.reshaping:
                        await work(log)
                except OSError as error:
                    if log.failure is None:
                        logger.warning("retention of %s: %s", log, error)
                except DamagedSegment as damage:  # a time index is wrong: the next round goes by a new one
                    await log.mend_indexes(damage)

    async def _expire_records(self, log: Log) -> None:
        config, now_ms = log.config, self._runtime.clock.wall_ms()
        limits = Limits(
            config.retention_ms, config.retention_bytes, self._host.high_watermark_of(log), now_ms
        )
        if not config.delete or limits.is_none or log.next_offset == log.segments.first_base_offset:
            return
        end_offset = log.next_offset
        # The active segment goes when all of its records are too old, not when DeleteRecords has passed them.
        known_start = min(log.log_start_offset, log.segments.active.base_offset)
        start_offset = await self._runtime.tasks.in_thread(
            look_through, log.segments.copy(), end_offset, known_start, limits
        )
        active = log.segments.active
        goes_whole = start_offset > active.base_offset
        if log.failure is not None or start_offset > log.next_offset:
            return
        if not goes_whole and start_offset <= log.log_start_offset:
            return
        logger.info("%s: records before %d are no longer kept", log, start_offset)
        if goes_whole:
            # The roll below needs room on the disk; the segments before this one go without.
            log.delete_records_before(active.base_offset)
            if log.next_offset != end_offset:
                return
            log.roll(now_ms)
        log.delete_records_before(start_offset)

    # Checkpoints and the end

    async def _checkpoint_regularly(self) -> None:
        while True:
            await self._runtime.tasks.sleep(self._settings().checkpoint_interval_s)
            await self._try_write_checkpoints()

    async def _try_write_checkpoints(self) -> None:
        try:
            await self.write_checkpoints()
        except OSError as error:
            logger.warning("checkpoints could not be written: %s", error)

    async def _expire_regularly(self) -> None:
        while True:
            await self._runtime.tasks.sleep(PRODUCER_CHECK_INTERVAL_S)
            expiration_ms = self._settings().producer_expiration_ms
            for number, log in enumerate(list(self.logs.values()), 1):
                if number % LOGS_PER_TURN == 0:
                    await self._runtime.tasks.sleep(0)
                log.expire_producers(self._runtime.clock.wall_ms(), expiration_ms)

    async def write_checkpoints(self) -> None:
        """Recovery points, log starts and high watermarks of all folders that work. OSError: of some not."""
        failure: OSError | None = None
        for folder in self.folders:
            if folder.failure is None:
                try:
                    await self.write_checkpoints_in(folder)
                except OSError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    async def write_checkpoints_of(self, log: Log) -> None:
        """The same of the folder in which a log lies: the others may be full, or fail. OSError: they are not
        written."""
        folder = self._folder_of.get(log.topic_partition)
        if log.failure is not None or folder is None:
            raise log.failure or FileNotFoundError(errno.ENOENT, "the log is deleted", log.folder)
        await self.write_checkpoints_in(folder)

    async def write_checkpoints_in(self, folder: DataFolder) -> None:
        async with self._checkpointing:
            stale = set(folder.stale)
            try:
                checkpoints = await self._checkpoints(folder)
                await self._runtime.tasks.in_thread(folder.write_checkpoints, checkpoints)
            except OSError as error:
                self.folder_error(folder, error)
                raise
            folder.stale -= stale

    async def _checkpoints(self, folder: DataFolder) -> Checkpoints:
        """What the checkpoints say, taken log by log: each entry holds for its log alone."""
        found = Checkpoints({}, {}, {}, {})
        moving = self.moves.written_in(
            folder
        )  # asked for before and after: one may change its folder meanwhile
        for number, (partition, log) in enumerate(list(self.logs.items()), 1):
            if number % LOGS_PER_TURN == 0:
                await self._runtime.tasks.sleep(0)
            if self._folder_of.get(partition) is folder and self.logs.get(partition) is log:
                found.add(log, log.last_flushed_offset, self._host.high_watermark_of(log))
        for log, recovery_point in (moving | self.moves.written_in(folder)).items():
            found.add(log, recovery_point, min(self._host.high_watermark_of(log), log.next_offset))
        return found

    async def close(self, broker_epoch: int = 0) -> None:
        """Close every log, write the checkpoints, and say that the stop was clean, unless the disk fails."""
        for task in self._background:
            task.cancel()
        await self.moves.close()
        for partition in list(self._leaving):
            await self.vacated(partition)
        limit = asyncio.Semaphore(CLOSES_AT_ONCE)
        unclean = {
            id(self._folder_of[partition])
            for partition, log in self.logs.items()
            if log.failure is not None and partition not in self._unmade
        }

        async def close_one(log: Log, folder: DataFolder) -> None:
            try:
                async with limit:
                    await log.close()
            except OSError as error:
                logger.error("%s could not be closed cleanly: %s", log, error)
                unclean.add(id(folder))

        spawn = self._runtime.tasks.spawn
        closing = [(log, self._folder_of[partition]) for partition, log in self.logs.items()]
        closing += [(log, folder) for folder in self.folders for _, log in self.moves.copies_in(folder)]
        for task in [spawn(close_one(*one), name="close log") for one in closing]:
            await task
        try:
            await self.write_checkpoints()
            for folder in self.folders:
                if folder.failure is None and id(folder) not in unclean:
                    await self._runtime.tasks.in_thread(folder.leave_clean_mark, broker_epoch)
        except OSError as error:
            logger.error("the stop is not clean, the next start will check the logs: %s", error)
        finally:
            self.release()

    def release(self) -> None:
        """Give up the locks, leaving everything else as it is."""
        for folder in self.folders:
            folder.release()
