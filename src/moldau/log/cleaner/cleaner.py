"""The background work that keeps compacted logs compact: choose a log, have it compacted, go on.

Up to `log.cleaner.threads` logs are compacted at a time, each in a child process; the dirtiest one that is due
comes next. When none is due, `log.cleaner.backoff.ms` pass before the next look. A log whose compaction fails is
left out from then on and the others go on: until the next start if its data is to blame, for a while if the disk
is. `cleaner-offset-checkpoint` in each data folder remembers how far each of its logs was compacted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.log.cleaner.choice import Dirty, first_dirty_offset, groups_of, look_at, shapes_below
from moldau.log.cleaner.job import Job, LastRecord, Replaced, Summary
from moldau.log.log import Log
from moldau.log.scan import DamagedSegment
from moldau.log.swap import decide_swap, remove_cleaned, undo_swap
from moldau.runtime.ports import ChildFailed, Runtime

logger = logging.getLogger(__name__)

DISK_RETRY_S = 300.0
"""How long a log is left alone after the disk refused something, such as room for the new segments."""

LOGS_PER_TURN = 1_000
"""Looked at before others get their turn of the loop."""
EXPECTED = (OSError, ChildFailed, DamagedSegment)
"""What may go wrong with a disk and its data; anything else is ours, and the log has a trace of it."""


class CleanerSettings(NamedTuple):
    """`log.cleaner.*`; looked at anew for each compaction."""

    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_bytes: int = 128 * 1024 * 1024
    """For all threads together."""
    load_factor: float = 0.9
    io_bytes: int = 512 * 1024
    bytes_per_second: float = float("inf")

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        return cls(
            threads=config["log.cleaner.threads"],
            backoff_ms=config["log.cleaner.backoff.ms"],
            dedupe_bytes=config["log.cleaner.dedupe.buffer.size"],
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            io_bytes=config["log.cleaner.io.buffer.size"],
            bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        )


class Logs(Protocol):
    """What the cleaner must know of the log manager."""

    @property
    def logs(self) -> dict[TopicPartition, Log]: ...

    async def write_checkpoints_of(self, log: Log) -> None: ...


@dataclass(slots=True)
class CleanerCounts:
    """What it has done so far."""

    compactions: int = 0
    failures: int = 0
    records_removed: int = 0
    bytes_removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    dirtiest_ratio: float = 0.0
    """At the last look."""


class LogCleaner:
    def __init__(
        self,
        runtime: Runtime,
        manager: Logs,
        settings: Callable[[], CleanerSettings],
        *,
        stable_offset_of: Callable[[Log], int] = lambda log: log.next_offset,
    ) -> None:
        """`stable_offset_of`: up to where no transaction is open."""
        self._runtime = runtime
        self._manager = manager
        self._settings = settings
        self._stable_offset_of = stable_offset_of
        self.counts = CleanerCounts()
        self.uncleanable: dict[TopicPartition, str] = {}
        """Why logs are left out."""
        self._left_out: dict[Log, float] = {}
        """Until when, by the monotonic clock."""
        self._running: dict[Log, asyncio.Task[object]] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    # The loop

    def start(self) -> None:
        self._loop = self._runtime.tasks.spawn(self._clean_forever(), name="log cleaner")

    async def stop(self) -> None:
        """What is under way is given up: the log stays as it is."""
        self.kill()
        for task in list(self._running.values()):
            try:
                await task
            except asyncio.CancelledError:
                pass

    def kill(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
        for task in self._running.values():
            task.cancel()

    @property
    def running(self) -> int:
        return len(self._running)

    async def _clean_forever(self) -> None:
        while True:
            settings = self._settings()
            log = await self._choose() if len(self._running) < settings.threads else None
            if log is not None:
                self._start(log)
                continue
            self._wake.clear()
            timer = self._runtime.tasks.call_later(settings.backoff_ms / 1000, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    def _start(self, log: Log) -> None:
        task = self._runtime.tasks.spawn(self.clean(log), name=f"compact {log.topic_partition}")
        self._running[log] = task
        log.reshaping.compaction = task

        def done(_: object) -> None:
            log.reshaping.compaction = None
            del self._running[log]
            self._wake.set()

        task.add_done_callback(done)

    async def _choose(self) -> Log | None:
        """The dirtiest of the logs that are due."""
        for log in [log for log in self._left_out if self._manager.logs.get(log.topic_partition) is not log]:
            del self._left_out[log]
            self.uncleanable.pop(log.topic_partition, None)
        best: tuple[float, Log] | None = None
        self.counts.dirtiest_ratio = 0.0
        for number, log in enumerate(list(self._manager.logs.values()), 1):
            if number % LOGS_PER_TURN == 0:
                await self._runtime.tasks.sleep(0)
            dirty = await self._dirty(log) if log.config.compact else None
            if dirty is None:
                continue
            self.counts.dirtiest_ratio = max(self.counts.dirtiest_ratio, dirty.ratio)
            if dirty.is_due(log.config.min_cleanable_dirty_ratio) and (not best or dirty.ratio > best[0]):
                best = dirty.ratio, log
        return best[1] if best is not None and self._is_open(best[1]) else None

    def _is_open(self, log: Log) -> bool:
        """Whether a log is there to be compacted now."""
        return (
            log.config.compact
            and log.failure is None
            and log not in self._running
            and not log.reshaping.locked()
            and not log.reshaping.is_moving
            and self._manager.logs.get(log.topic_partition) is log
            and self._may_try(log)
        )

    def _may_try(self, log: Log) -> bool:
        if self._runtime.clock.monotonic() < self._left_out.get(log, 0.0):
            return False
        self._left_out.pop(log, None)
        self.uncleanable.pop(log.topic_partition, None)
        return True

    async def _dirty(self, log: Log) -> Dirty | None:
        if not self._is_open(log):
            return None
        try:
            first_dirty = _first_dirty(log)
            if first_dirty >= log.segments.active.base_offset:
                return None  # nothing was closed since: the disk need not be asked
            stable_offset, now_ms = self._stable_offset_of(log), self._runtime.clock.wall_ms()
            return await self._runtime.tasks.in_thread(
                look_at, log.segments.copy(), first_dirty, stable_offset, log.config, now_ms
            )
        except FileNotFoundError:
            return None  # retention was faster
        except (OSError, DamagedSegment) as error:
            self._note_failure(log, error)
            return None

    # One log

    async def clean(self, log: Log) -> Summary | None:
        """Compact a log as far as that is possible now; None where there was nothing, or it failed."""
        try:
            async with log.reshaping:
                summary = await self._clean(log)
        except asyncio.CancelledError:
            await self._remove_cleaned(log)
            raise
        except Exception as error:  # whatever is wrong with one log, the others go on
            if log.failure is None:
                self._note_failure(log, error)
                await self._remove_cleaned(log)
            return None
        if summary is not None:
            self._note_success(log.topic_partition, summary)
        return summary

    async def _remove_cleaned(self, log: Log) -> None:
        """At once: it may have been room on the disk that was missing."""
        try:
            await self._runtime.tasks.in_thread(remove_cleaned, self._runtime.disk, log.folder)
        except OSError as error:
            logger.warning("%s: what is left of a compaction could not be removed: %s", log, error)

    async def _clean(self, log: Log) -> Summary | None:
        job = await self._plan(log, _first_dirty(log))
        if job is None:
            return None
        # Recovery takes a gap for lost data where the checkpoint does not tell it better.
        if log.last_flushed_offset < job.end_offset:
            await log.flush()
            if log.last_flushed_offset < job.end_offset:
                raise OSError(errno.ENOSPC, "there is no room for some of its small files", log.folder)
        await self._manager.write_checkpoints_of(log)
        summary = await self._in_child(log, job)
        log.reshaping.cleaned_to = job.end_offset
        await self._manager.write_checkpoints_of(log)
        return summary

    async def _in_child(self, log: Log, job: Job) -> Summary:
        """Run the compaction, and take in what it has ready while it goes on."""
        from moldau.log.cleaner.work import compact  # for the child: many brokers have nothing to compact

        ready: asyncio.Queue[Replaced | None] = asyncio.Queue()
        tasks = self._runtime.tasks

        async def take_in() -> OSError | None:
            try:
                while (replaced := await ready.get()) is not None:
                    await swap_in(self._runtime, log, replaced)
            except OSError as error:  # told when the child has ended, for which nobody may be waiting yet
                return error
            return None

        taking = tasks.spawn(take_in(), name=f"swap segments of {log.topic_partition}")
        child = tasks.spawn(tasks.in_child(compact, job, report=ready.put_nowait), name="compaction")
        taking.add_done_callback(lambda _: child.cancel())  # it has failed, unless the child is done anyway
        try:
            return await child
        except asyncio.CancelledError:
            if taking.done() and (failure := taking.result()) is not None:
                raise failure from None
            _forget_waiting(ready)
            raise
        finally:
            ready.put_nowait(None)
            failure = await _taken_in(taking, ready)
            if failure is not None:
                raise failure

    async def _plan(self, log: Log, first_dirty: int) -> Job | None:
        config, settings, in_thread = log.config, self._settings(), self._runtime.tasks.in_thread
        stable_offset, now_ms = self._stable_offset_of(log), self._runtime.clock.wall_ms()
        last_records = {
            entry.producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.epoch)
            for entry in log.producers()
        }
        segments, aborted = log.segments.copy(), log.producing.aborted.copy()
        dirty = await in_thread(look_at, segments, first_dirty, stable_offset, config, now_ms)
        if dirty.end_offset <= first_dirty:
            return None
        shapes = await in_thread(shapes_below, segments, dirty.end_offset)
        threads = max(1, settings.threads)
        return Job(
            folder=log.folder,
            groups=groups_of(shapes, dirty.end_offset, config.segment_bytes, config.segment_index_bytes),
            end_offset=dirty.end_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            last_records=last_records,
            aborted=tuple(await in_thread(aborted.below, dirty.end_offset)),
            dedupe_bytes=int(settings.dedupe_bytes * settings.load_factor) // threads,
            io_bytes=settings.io_bytes // threads,
            bytes_per_second=settings.bytes_per_second,
        )

    def _note_success(self, partition: TopicPartition, summary: Summary) -> None:
        counts = self.counts
        counts.compactions += 1
        counts.records_removed += summary.records_before - summary.records_after
        counts.bytes_removed += summary.bytes_before - summary.bytes_after
        counts.bytes_read += summary.bytes_read
        counts.bytes_written += summary.bytes_written
        counts.seconds += summary.duration_s
        logger.info(
            "%s is compacted: %d of %d records and %d of %d bytes are left, in %.1f s",
            partition,
            summary.records_after,
            summary.records_before,
            summary.bytes_after,
            summary.bytes_before,
            summary.duration_s,
        )

    def _note_failure(self, log: Log, error: Exception) -> None:
        self.counts.failures += 1
        self.uncleanable[log.topic_partition] = str(error)
        self._left_out[log] = float("inf")
        advice = "it is not compacted again before the next start; `moldau log verify` tells more"
        if isinstance(error, OSError):
            self._left_out[log] = self._runtime.clock.monotonic() + DISK_RETRY_S
            advice = f"it is tried again in {DISK_RETRY_S:.0f} s"
        unexpected = None if isinstance(error, EXPECTED) else error
        logger.error(
            "%s cannot be compacted: %s; %s", log.topic_partition, error, advice, exc_info=unexpected
        )


async def _taken_in(
    taking: asyncio.Task[OSError | None], ready: asyncio.Queue[Replaced | None]
) -> OSError | None:
    """Wait until segments are taken in, also when told to stop: then those that were not begun are given up.

    A swap that has begun is never left half done while the log is in use, nor are its files removed under it.
    """
    stopped: asyncio.CancelledError | None = None
    while not taking.done():
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError as told:
            stopped = told
            _forget_waiting(ready)
            ready.put_nowait(None)
    if stopped is not None:
        raise stopped
    return taking.result()


def _forget_waiting(ready: asyncio.Queue[Replaced | None]) -> None:
    while not ready.empty():
        ready.get_nowait()


async def swap_in(runtime: Runtime, log: Log, replaced: Replaced) -> None:
    """Make new segments a log's own. OSError: it goes on with the old ones, unless it has failed."""
    disk, in_thread = runtime.disk, runtime.tasks.in_thread
    try:
        await in_thread(decide_swap, disk, log.folder, replaced.new)
    except OSError:
        try:
            await in_thread(undo_swap, disk, log.folder, replaced.new)
        except OSError as error:  # the next start would finish it, whatever became of the log until then
            log.fail(error)
        raise
    await log.settle_indexes()
    try:
        log.replace_segments(replaced.old, replaced.new)
        await in_thread(disk.sync_folder, log.folder)
    except OSError as error:  # the next start finishes it
        log.fail(error)
        raise


def _first_dirty(log: Log) -> int:
    """What no longer fits the log is put right, as in Kafka: it must not come to fit again when the log grows."""
    offset = first_dirty_offset(log.reshaping.cleaned_to, log.log_start_offset, log.next_offset)
    if log.reshaping.cleaned_to is not None:
        log.reshaping.cleaned_to = offset
    return offset
