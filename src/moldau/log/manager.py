"""The logs of a broker over its data folders: opening, creating, deleting, checkpoints, the clean end.

`open` locks the folders and opens every log in threads, `num.recovery.threads.per.data.dir` at once per
folder. From then on `get` and `create` are immediate. A folder that fails takes its logs with it; the
others go on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence

from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.folder import Checkpoints, DataFolder
from moldau.log.log import LoadedLog, Log
from moldau.log.recovery import Opening, create_log, load_log
from moldau.log.retention import Limits, look_through
from moldau.runtime.ports import Runtime

logger = logging.getLogger(__name__)

LOGS_PER_JOB = 32
"""Logs that one thread opens before it reports: few enough to spread, enough to make the hand-over cheap."""
CLOSES_AT_ONCE = 16
CHECKPOINT_INTERVAL_S = 60.0
"""Kafka's `log.flush.offset.checkpoint.interval.ms`."""
RETENTION_CHECK_INTERVAL_S = 300.0
"""Kafka's `log.retention.check.interval.ms`."""
FIRST_RETENTION_CHECK_S = 30.0
"""A broker that is restarted often must come to it too."""
PRODUCER_CHECK_INTERVAL_S = 600.0
PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's `producer.id.expiration.check.interval.ms` and `producer.id.expiration.ms`."""


class LogManager:
    def __init__(
        self,
        runtime: Runtime,
        folders: Sequence[str],
        *,
        cluster_id: str,
        node_id: int,
        process_id: int,
        config_of: Callable[[str], TopicConfig],
        high_watermark_of: Callable[[Log], int] = lambda log: log.next_offset,
        on_failure: Callable[[Log, OSError], object] | None = None,
        recovery_threads: int = 2,
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
        retention_interval_s: float = RETENTION_CHECK_INTERVAL_S,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> None:
        self._runtime = runtime
        self._identity = (cluster_id, node_id)
        self._process_id = process_id
        self._config_of = config_of
        self._high_watermark_of = high_watermark_of
        self._on_failure = on_failure
        self._recovery_threads = recovery_threads
        self._checkpoint_interval_s = checkpoint_interval_s
        self._retention_interval_s = retention_interval_s
        self._producer_expiration_ms = producer_expiration_ms
        self.folders = [DataFolder(runtime.disk, path) for path in folders]
        self.logs: dict[TopicPartition, Log] = {}
        self.checkpointed_high_watermarks: dict[TopicPartition, int] = {}
        self._folder_of: dict[TopicPartition, DataFolder] = {}
        self._leaving: dict[TopicPartition, asyncio.Event] = {}
        """Deleted logs whose folder is still written to."""
        self._background: list[asyncio.Task[None]] = []
        self._checkpointing = asyncio.Lock()

    # Opening

    async def open(self) -> None:
        """DataFolderError says, for people, why a folder cannot be used."""
        in_thread = self._runtime.tasks.in_thread
        try:
            for folder in self.folders:
                directory_id = _new_id(self._runtime)
                await in_thread(folder.acquire, *self._identity, directory_id, self._process_id)
            for folder in self.folders:
                await self._open_logs(folder)
        except BaseException:
            self.release()
            raise
        spawn = self._runtime.tasks.spawn
        self._background = [
            spawn(self._checkpoint_regularly(), name="log checkpoints"),
            spawn(self._expire_regularly(), name="producer expiration"),
            spawn(self._retain_regularly(), name="retention"),
        ]

    async def _open_logs(self, folder: DataFolder) -> None:
        in_thread = self._runtime.tasks.in_thread
        clean = await in_thread(folder.take_clean_mark)
        checkpoints = await in_thread(folder.read_checkpoints)
        self.checkpointed_high_watermarks.update(checkpoints.high_watermarks)
        found = await in_thread(folder.partitions)
        if not clean and found:
            logger.info("%s was not closed cleanly: %d logs are checked", folder.path, len(found))
        jobs = [found[i : i + LOGS_PER_JOB] for i in range(0, len(found), LOGS_PER_JOB)]
        limit = asyncio.Semaphore(self._recovery_threads)

        async def open_some(some: list[tuple[TopicPartition, str]]) -> None:
            async with limit:
                openings = [self._opening(partition, path, clean, checkpoints) for partition, path in some]
                loaded = await in_thread(self._load, openings)
            for (partition, path), one in zip(some, loaded, strict=True):
                self._keep(partition, path, one, folder)

        for task in [self._runtime.tasks.spawn(open_some(some), name="open logs") for some in jobs]:
            await task

    def _opening(
        self, partition: TopicPartition, path: str, clean: bool, checkpoints: Checkpoints
    ) -> Opening:
        return Opening(
            folder=path,
            clean=clean,
            recovery_point=checkpoints.recovery_points.get(partition),
            log_start_offset=checkpoints.log_starts.get(partition, 0),
            index_interval_bytes=self._config_of(partition.topic).index_interval_bytes,
            now_ms=self._runtime.clock.wall_ms(),
        )

    def _load(self, openings: Iterable[Opening]) -> list[LoadedLog]:
        return [load_log(self._runtime.disk, opening) for opening in openings]

    def _keep(self, partition: TopicPartition, path: str, loaded: LoadedLog, folder: DataFolder) -> Log:
        config = self._config_of(partition.topic)
        log = Log(partition, path, config, self._runtime, loaded, self._log_failed)
        self.logs[partition] = log
        self._folder_of[partition] = folder
        folder.log_count += 1
        return log

    # Logs

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, config: TopicConfig | None = None
    ) -> Log:
        """A new, empty log in the folder that has the fewest; the one that exists where there is one."""
        log = self.logs.get(partition)
        if log is not None:
            return log
        folder = self._emptiest_folder()
        path = f"{folder.path}/{partition}"
        loaded = create_log(self._runtime.disk, path, topic_id, self._runtime.clock.wall_ms())
        log = self._keep(partition, path, loaded, folder)
        if config is not None:
            log.configure(config)
        log.write_created(folder.name_sync())
        return log

    def _emptiest_folder(self) -> DataFolder:
        working = [folder for folder in self.folders if folder.failure is None]
        if not working:
            raise OSError(errno.EIO, "all data folders have failed")
        return min(working, key=lambda folder: folder.log_count)

    def delete(self, partition: TopicPartition) -> None:
        """The log is gone at once; its files go after `file.delete.delay.ms`, or at the next start.

        A thread that is just writing to them is let finish before the folder is renamed: it knows its files by
        their names, and would disturb a new log of the same name. `vacated` waits for it.
        """
        log = self.logs.pop(partition, None)
        if log is None:
            return
        folder = self._folder_of.pop(partition)
        folder.log_count -= 1
        log.abandon()
        self._leaving[partition] = left = asyncio.Event()
        target = f"{folder.path}/{names.deleted_folder(partition, self._runtime.random.uuid())}"

        def leave() -> None:
            del self._leaving[partition]
            left.set()
            source, log.folder = log.folder, target
            self._runtime.disk.rename(source, target)
            self._runtime.tasks.spawn(
                self._remove_later(folder, target, log.config.file_delete_delay_ms), name=f"remove {target}"
            )

        log.when_quiet(leave)

    async def vacated(self, partition: TopicPartition) -> None:
        """Wait until a deleted log's folder is free for a new one."""
        while (left := self._leaving.get(partition)) is not None:
            await left.wait()

    async def _remove_later(self, folder: DataFolder, path: str, delay_ms: int) -> None:
        await self._runtime.tasks.sleep(delay_ms / 1000)
        await self._runtime.tasks.in_thread(folder.remove_tree, path)

    def _log_failed(self, log: Log, error: OSError) -> None:
        folder = self._folder_of.get(log.topic_partition)
        if folder is None:
            return
        if folder.failure is None:
            folder.failure = error
            logger.error("data folder %s has failed: %s", folder.path, error)
            for partition, other in list(self.logs.items()):
                if self._folder_of[partition] is folder:
                    other.fail(error)
        if self._on_failure is not None:
            self._on_failure(log, error)

    # Retention

    async def _retain_regularly(self) -> None:
        await self._runtime.tasks.sleep(min(FIRST_RETENTION_CHECK_S, self._retention_interval_s))
        while True:
            await self.enforce_retention()
            await self._runtime.tasks.sleep(self._retention_interval_s)

    async def enforce_retention(self) -> None:
        """Let every log begin behind what its topic no longer keeps, and remove the segments before that.

        What goes wrong with one log is logged, and tried again the next time.
        """
        await self._for_each_log(self._expire_records)
        try:
            await self.write_checkpoints()
        except OSError as error:  # no reason to keep what is old: the disk may be full
            logger.warning("checkpoints could not be written: %s", error)
        await self._for_each_log(Log.remove_old_segments)

    async def _for_each_log(self, work: Callable[[Log], Awaitable[object]]) -> None:
        for log in list(self.logs.values()):
            if log.failure is None and not log.reshaping.locked():  # else it is being compacted
                try:
                    async with log.reshaping:
                        await work(log)
                except OSError as error:
                    if log.failure is None:
                        logger.warning("retention of %s: %s", log, error)

    async def _expire_records(self, log: Log) -> None:
        config, now_ms = log.config, self._runtime.clock.wall_ms()
        limits = Limits(config.retention_ms, config.retention_bytes, self._high_watermark_of(log), now_ms)
        if not config.delete or limits.is_none or log.next_offset == log.segments.first_base_offset:
            return
        end_offset = log.next_offset
        start_offset = await self._runtime.tasks.in_thread(
            look_through, log.segments.copy(), end_offset, log.log_start_offset, limits
        )
        if start_offset <= log.log_start_offset or log.failure is not None:
            return
        logger.info("%s: records before %d are no longer kept", log, start_offset)
        active = log.segments.active
        if start_offset > active.base_offset:  # all is old: what is written from now on goes to a new segment
            log.delete_records_before(active.base_offset)  # goes also where there is no room for a new one
            if log.next_offset != end_offset:
                return
            log.roll(now_ms)
        log.delete_records_before(start_offset)

    # Checkpoints and the end

    async def _checkpoint_regularly(self) -> None:
        while True:
            await self._runtime.tasks.sleep(self._checkpoint_interval_s)
            try:
                await self.write_checkpoints()
            except OSError as error:
                logger.warning("checkpoints could not be written: %s", error)

    async def _expire_regularly(self) -> None:
        while True:
            await self._runtime.tasks.sleep(PRODUCER_CHECK_INTERVAL_S)
            now_ms = self._runtime.clock.wall_ms()
            for log in list(self.logs.values()):
                log.expire_producers(now_ms, self._producer_expiration_ms)

    async def write_checkpoints(self) -> None:
        """Recovery points, log starts and high watermarks of all folders that work."""
        async with self._checkpointing:
            for folder in self.folders:
                if folder.failure is None:
                    await self._runtime.tasks.in_thread(self._write, folder, self._checkpoints(folder))

    def _checkpoints(self, folder: DataFolder) -> Checkpoints:
        logs = [(p, log) for p, log in self.logs.items() if self._folder_of[p] is folder]
        return Checkpoints(
            {partition: log.last_flushed_offset for partition, log in logs},
            {
                p: log.log_start_offset
                for p, log in logs
                if log.log_start_offset > 0  # also where a segment begins there: older ones may come back
            },
            {partition: self._high_watermark_of(log) for partition, log in logs},
        )

    @staticmethod
    def _write(folder: DataFolder, checkpoints: Checkpoints) -> None:
        folder.write_offsets(names.RECOVERY_POINTS, checkpoints.recovery_points)
        folder.write_offsets(names.LOG_STARTS, checkpoints.log_starts)
        folder.write_offsets(names.HIGH_WATERMARKS, checkpoints.high_watermarks)

    async def close(self, broker_epoch: int = 0) -> None:
        """Close every log, write the checkpoints, and say that the stop was clean, unless the disk fails."""
        for task in self._background:
            task.cancel()
        for partition in list(self._leaving):
            await self.vacated(partition)
        limit = asyncio.Semaphore(CLOSES_AT_ONCE)

        async def close_one(log: Log) -> None:
            try:
                async with limit:
                    await log.close()
            except OSError as error:
                logger.error("%s could not be closed cleanly: %s", log, error)
                log.fail(error)

        spawn = self._runtime.tasks.spawn
        for task in [spawn(close_one(log), name="close log") for log in self.logs.values()]:
            await task
        try:
            await self.write_checkpoints()
            for folder in self.folders:
                if folder.failure is None:
                    await self._runtime.tasks.in_thread(folder.leave_clean_mark, broker_epoch)
        except OSError as error:
            logger.error("the stop is not clean, the next start will check the logs: %s", error)
        finally:
            self.release()

    def release(self) -> None:
        """Give up the locks, leaving everything else as it is."""
        for folder in self.folders:
            folder.release()


def _new_id(runtime: Runtime) -> uuid.UUID:
    """A random id whose text does not begin with a dash: it may be an argument of a command."""
    while True:
        value = runtime.random.uuid()
        if not names.id_text(value).startswith("-"):
            return value
