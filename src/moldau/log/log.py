"""One partition's log: append, read, roll, flush, close.

Used on the loop's thread, without waiting: appends go to the page cache, reads give back a place in a file.
What may wait for the disk (sync, snapshots, cold pages) runs in threads through `Tasks`. Protocol outcomes
are values (`Appended.error`) or `KafkaError`; `OSError` is the disk's. A log whose sync failed is failed
for good: every later call raises that error. A full disk changes nothing in a log (see `disk_errors`). Memory
does not grow with the log (see `segments`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.appended import Appended
from moldau.log.aside import Aside
from moldau.log.checkpoints import write_partition_metadata
from moldau.log.epochs import EpochEnd
from moldau.log.flush import Flushed, Flusher
from moldau.log.following import Fetched, Following
from moldau.log.index import read_nowait
from moldau.log.loaded import LoadedLog
from moldau.log.producers import BatchSeen, ProducerEntry, Producers, Verification
from moldau.log.producing import Producing
from moldau.log.reader import EMPTY, Reader, Slice, TimestampOffset, Unchecked
from moldau.log.removal import Removal
from moldau.log.reshaping import Reshaping
from moldau.log.rolling import Rolling
from moldau.log.scan import DamagedSegment
from moldau.log.search import Search, by_max_timestamp, by_timestamp
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.log.segments import Segments
from moldau.log.snapshots import read_snapshot
from moldau.log.transactions_index import AbortedIndexes
from moldau.log.truncation import Checkpoint, Truncation
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL,
    LENGTH_AND_BEFORE_BYTES,
    NO_TIMESTAMP,
    OFFSET_AND_EPOCH,
    TRANSACTIONAL,
    read_header,
)
from moldau.records.bounds import TooMuch
from moldau.records.validate import AppendRules, HeaderFields, Looked, Refused, check_batch, recompress
from moldau.runtime.ports import Runtime

logger = logging.getLogger(__name__)
_NO_ERROR = ErrorCode.none
_new_tuple = tuple.__new__
"""Half the cost of calling a NamedTuple's class."""


class Log:
    __slots__ = (
        "_closing",
        "_config",
        "_flusher",
        "_on_error",
        "_on_failure",
        "_reader",
        "_removal",
        "_rolling",
        "_runtime",
        "_search",
        "aside",
        "epochs",
        "failure",
        "folder",
        "log_start_offset",
        "next_offset",
        "on_cut",
        "on_start_moved",
        "producing",
        "reshaping",
        "rules",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        folder: str,
        config: TopicConfig,
        runtime: Runtime,
        loaded: LoadedLog,
        on_failure: Callable[[Log, OSError], object] | None = None,
        on_error: Callable[[Log, OSError, int], object] | None = None,
        aside: Aside | None = None,
    ) -> None:
        """`on_failure`: the log has failed for good. `on_error`: a write went wrong, and the log goes on. `aside`: of
        the broker."""
        self.topic_partition = topic_partition
        self.topic_id = loaded.topic_id
        self.folder = folder
        self._runtime = runtime
        self._on_failure = on_failure
        self._on_error = on_error
        self.log_start_offset = loaded.log_start_offset
        self.next_offset = loaded.next_offset
        self.on_start_moved: Callable[[], object] | None = None
        self.on_cut: Callable[[int], object] | None = None
        """Called when the end of the log was cut off, with where it ends now."""
        self.epochs = loaded.epochs
        self.segments = Segments(runtime.disk, folder, loaded.bases, loaded.active)
        self.failure: OSError | None = None
        self._reader = Reader(self.segments)
        self._flusher = Flusher(self, runtime, str(topic_partition), loaded.recovery_point)
        aborted = AbortedIndexes(runtime.disk, folder, loaded.aborted_bases)
        self.producing = Producing(self, self._flusher, loaded.producers, aborted)
        self._removal = Removal(self, self._flusher, runtime, str(topic_partition))
        self.aside = aside or Aside(runtime.tasks)
        self._search = Search(self, self._reader, runtime, self.aside)
        self._rolling = Rolling(self, self._flusher, self._search, runtime, loaded.snapshot_offset)
        self._closing = False
        self.reshaping = Reshaping()
        self.configure(config)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.next_offset})"

    @property
    def last_flushed_offset(self) -> int:
        """The recovery point: everything below is on the disk."""
        return self._flusher.recovery_point

    @property
    def is_straight(self) -> bool:
        """Whether an append can be answered at once: it is never `flush_due`, nor recompressed."""
        return not self._flusher.has_policy and self.rules.codec is None

    @property
    def config(self) -> TopicConfig:
        return self._config

    def configure(self, config: TopicConfig) -> None:
        """Take the topic's settings, from now on. A compaction that they no longer want is given up."""
        self._config = config
        if not config.compact:
            self.reshaping.stop_compaction()
        self.rules = AppendRules.of(str(self.topic_partition), config)
        self._flusher.configure(config)
        self._rolling.set_limits(self.segments.active)

    # Appending

    def append(
        self,
        buffer: memoryview,
        start: int,
        stop: int,
        leader_epoch: int,
        now_ms: int,
        zstd_allowed: bool = True,
        guard: Verification | None = None,
        looked: Looked | None = None,
    ) -> Appended:
        """Append a client's batch as the leader. Offset and epoch are written into the buffer, in place.

        `guard` is for the first batch of a transaction (see `producing`), `looked` for one that `wants_looking_at`.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        rules = self.rules
        segment_bytes = self._config.segment_bytes
        try:
            header = check_batch(buffer, start, stop, rules, now_ms, zstd_allowed, looked)
            _, length, _, _, _, attributes, _, _, _, producer, _, _, _ = header
            stop = start + length + LENGTH_AND_BEFORE_BYTES
            if rules.codec is not None and rules.codec != attributes & CODEC_MASK:
                buffer = memoryview(bytearray(recompress(buffer[start:stop], rules)))
                start, stop, header = 0, len(buffer), read_header(buffer)
            if stop - start > segment_bytes:
                raise Refused(
                    ErrorCode.record_list_too_large,
                    f"batch of {stop - start} bytes exceeds segment.bytes of {segment_bytes}",
                    before_append=True,
                )
            if producer >= 0 or attributes & TRANSACTIONAL:
                seen = self.producing.check(header, guard)
                if seen is not None:
                    return self._duplicate(seen)
        except Refused as refusal:
            return self.refused(refusal)
        except TooMuch:
            return self.refused(Refused(ErrorCode.unknown_server_error, "it was to be looked at first"))
        return self.put(buffer, start, stop, header, leader_epoch, now_ms)

    def put(
        self, buffer: memoryview, start: int, stop: int, header: HeaderFields, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Append a batch that was checked, or that the broker itself has made."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        _, length, _, _, _, attributes, last_delta, _, max_timestamp, producer, epoch, sequence, count = (
            header
        )
        config = self._config
        base_offset = self.next_offset
        last_offset = base_offset + last_delta
        segment = self.segments.active
        try:
            if (
                segment.size + stop - start > config.segment_bytes
                or max_timestamp > segment.roll_at
                or segment.full
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            ):
                segment = self._rolling.segment_for(stop - start, last_offset, max_timestamp, now_ms)
            OFFSET_AND_EPOCH.pack_into(buffer, start, base_offset, length, leader_epoch)
            if segment.size == 0:
                self._flusher.queue_folder_sync()
            segment.append(
                buffer[start:stop], stop - start, last_offset, max_timestamp, config.index_interval_bytes
            )
        except OSError as error:
            self.note_error(error, stop - start)
            raise
        self.next_offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.assign_epoch(leader_epoch, base_offset)
        if producer >= 0:
            if attributes & CONTROL:
                self.producing.end(buffer[start:stop], base_offset)
            else:
                transactional = attributes & TRANSACTIONAL != 0
                self.producing.state.add(
                    producer, epoch, sequence, base_offset, last_offset, max_timestamp, transactional
                )
        flusher = self._flusher
        flush_due = flusher.has_policy and flusher.note_appended(count)
        append_time_ms = now_ms if self.rules.log_append_time else NO_TIMESTAMP
        start_offset = self.log_start_offset
        return _new_tuple(
            Appended,
            (_NO_ERROR, base_offset, last_offset, append_time_ms, start_offset, None, (), False, flush_due),
        )

    def append_fetched(self, buffer: memoryview, now_ms: int, batches_max: int = 2**31) -> Fetched:
        """Append a leader's batches as its follower (see `following`)."""
        return Following(self, self._flusher, self._rolling).append(buffer, now_ms, batches_max)

    def _duplicate(self, seen: BatchSeen) -> Appended:
        """The answer to a retry of a stored batch."""
        return Appended(
            _NO_ERROR,
            seen.first_offset,
            seen.last_offset,
            seen.timestamp,
            self.log_start_offset,
            duplicate=True,
            flush_due=self._flusher.must_wait(seen.last_offset),
        )

    def in_background(self, work: Callable[..., object], *arguments: object) -> None:
        """Blocking work whose effect is that its pages are cached afterwards."""
        in_thread = self._runtime.tasks.in_thread

        async def run() -> None:
            with suppress(DamagedSegment, struct.error, FileNotFoundError):
                await in_thread(work, *arguments)

        self._runtime.tasks.spawn(run(), name=f"read in {self.topic_partition}")

    def refused(self, refusal: Refused) -> Appended:
        log_start_offset = -1 if refusal.before_append else self.log_start_offset
        return Appended(
            refusal.code, -1, -1, NO_TIMESTAMP, log_start_offset, refusal.message, refusal.record_errors
        )

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at an offset. The checkpoint is written in the background."""
        self.epochs.assign(epoch, start_offset)
        if self.epochs.changed:
            self._flusher.write()

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one. OSError leaves all as it was."""
        self._rolling.roll(now_ms)

    # Removing what is old

    def delete_records_before(self, offset: int) -> None:
        """Let the log begin at an offset, for good once the log starts are checkpointed. It never moves back. Whole
        segments below go with `remove_old_segments`. KafkaError (offset_out_of_range) beyond the end."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if not 0 <= offset <= self.next_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"{offset} is not between 0 and the end, {self.next_offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)  # written with the next flush: recovery does it again
            if self.on_start_moved is not None:
                self.on_start_moved()

    async def remove_old_segments(self) -> int:
        """Take the segments that lie below the log's start out of it; returns how many. Never the active one.

        Their files are renamed, and removed after `file.delete.delay.ms`. The log's start is checkpointed
        before: a crash may undo some of the renames, in any order.
        """
        if not self._has_old_segment():
            return 0
        if self._flusher.is_writing:  # a segment may wait for its sync, or its snapshot be unwritten
            await self.until(self._flusher.write)
        gone: list[str] = []
        count = 0
        try:
            while self._has_old_segment():
                base_offset = self.segments.remove_first()
                count += 1
                gone += [*names.deleted_files(base_offset), *self._removal.drop_snapshot(base_offset)]
                gone += self.producing.aborted.mark_deleted(base_offset)
        finally:
            self._removal.later(gone, self._config.file_delete_delay_ms)
        return count

    def _has_old_segment(self) -> bool:
        end_offset = self.segments.first_end_offset
        return self.failure is None and end_offset is not None and end_offset <= self.log_start_offset

    # Truncating

    async def truncate_to(self, offset: int, checkpoint: Checkpoint) -> None:
        """Let the log end at an offset, or before the batch that reaches over it. On the disk when it returns.

        Below the log's start it is empty afterwards, and begins there. `checkpoint` is the manager's; nobody may
        append meanwhile. OSError: not all is cut off, try again.
        """
        await self._truncation().to(offset, checkpoint)

    async def truncate_fully_and_start_at(self, offset: int, checkpoint: Checkpoint) -> None:
        """Drop everything: the log is empty and begins at an offset. As `truncate_to`."""
        await self._truncation().fully(offset, checkpoint)

    def _truncation(self) -> Truncation:
        return Truncation(self, self._flusher, self._removal, self._runtime)

    def cut_back(self, start_offset: int, next_offset: int, producers: Producers, snapshot: int) -> None:
        """The segments were cut off (`truncation`): the log is this from now on."""
        self.log_start_offset, self.next_offset = start_offset, next_offset
        self.producing.state, self._rolling.snapshot_offset = producers, snapshot
        if self.segments.first_base_offset == next_offset:
            self.epochs.clear()
        else:
            self.epochs.truncate_from_end(next_offset)
        self._reader.forget_positions()
        self._rolling.set_limits(self.segments.active)
        if self.on_cut is not None:
            self.on_cut(next_offset)

    async def settle_indexes(self) -> None:
        """Wait until no index of the log is being mended. Until the next await, none will be."""
        await self._search.settled()

    def replace_segments(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Put compacted segments, which lie there as `.swap` files, in the place of old ones, in one step.

        OSError: only a start can put things right. Call `settle_indexes` before.
        """
        gone = self.producing.replace_segments(old, new)
        self._reader.forget_positions()
        for base_offset in old:
            if base_offset not in new:
                gone += self._removal.drop_snapshot(base_offset)
        self._removal.later(gone, self._config.file_delete_delay_ms)

    # Moving to another folder

    def take_snapshot(self, content: bytes) -> None:
        """For a copy: the producers at its end, as a snapshot of the log that it is made from has them."""
        self.producing.state = Producers(read_snapshot(content, self.next_offset))
        self._flusher.queue_file(names.file_name(self.next_offset, names.SNAPSHOT), content)
        self._rolling.snapshot_offset = self.next_offset

    def relocate(self, folder: str) -> None:
        """The folder has another name now."""
        self.folder = folder
        self.segments.relocate(folder)
        self.producing.aborted.relocate(folder)

    async def write_queued(self) -> None:
        """Wait until no small file and no closed segment waits for the disk."""
        await self.until(self._flusher.write)

    def between_flushes(self, call: Callable[[], object]) -> None:
        """Call when no thread writes to the log's files; who waits for a flush waits on."""
        self._flusher.between_rounds(call)

    @property
    def is_flushing(self) -> bool:
        return self._flusher.is_running

    def go_on_in(self, copy: Log, name_sync: Callable[[], None]) -> Segments:
        """From now on the log lies where its copy does, which has every batch of it. Gives back the segments of
        before: who reads them goes on. Call it `between_flushes`, and after `settle_indexes`."""
        before, self.segments = self.segments, copy.segments
        self.segments.generation = before.generation + 1
        self.folder = copy.folder
        self._reader.go_on_in(self.segments)
        self.producing.go_on_with(copy.producing)
        self._rolling.snapshot_offset = copy._rolling.snapshot_offset
        self._flusher.go_on_with(copy._flusher)
        self._flusher.queue(name_sync)
        self._rolling.set_limits(self.segments.active)
        return before

    # Reading

    def read(self, offset: int, max_bytes: int, *, below_offset: int, whole_first_batch: bool) -> Slice:
        """Where the batches from an offset on lie, in whole batches below an offset. No data is read, but for what
        nobody has checked yet.

        KafkaError (offset_out_of_range, corrupt_message); BlockingIOError where an index or header page is
        cold, or much is to be checked: `warm` it.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        next_offset = self.next_offset
        if not self.log_start_offset <= offset <= next_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have"
                f" log segments from offset {self.log_start_offset} up to {next_offset}.",
            )
        if offset == next_offset or offset >= below_offset:
            return EMPTY
        try:
            return self._reader.read(
                offset, next_offset, max_bytes, below_offset, whole_first_batch, read_nowait
            )
        except Unchecked as unchecked:
            return self._search.checked_now(unchecked)
        except DamagedSegment as damage:
            raise self._search.explain(damage) from None

    async def warm(self, offset: int, max_bytes: int) -> None:
        """Bring what a read needs into the page cache, and check it where nobody has yet."""
        await self._search.warm(offset, max_bytes, self.producing.bringing_in(offset))

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is not below the given one. Raises as `read`."""
        return self._search.now(by_timestamp(timestamp))

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp. Raises as `read`."""
        return self._search.now(by_max_timestamp)

    async def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """`offset_for_timestamp`, waiting for the disk in a thread where it must."""
        return await self._search.waiting(by_timestamp(timestamp))

    async def find_max_timestamp(self) -> TimestampOffset | None:
        """`max_timestamp_offset`, waiting for the disk in a thread where it must."""
        return await self._search.waiting(by_max_timestamp)

    async def mend_indexes(self, damage: DamagedSegment) -> None:
        """An index led someone astray: it is rebuilt, once."""
        await self._search.mend(damage)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.next_offset)

    def producers(self) -> list[ProducerEntry]:
        return self.producing.state.entries()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        return self.producing.state.expire(now_ms, expiration_ms)

    def size_bytes(self) -> int:
        return self.segments.size_bytes()

    # Flushing

    def flush_then(self, callback: Flushed) -> None:
        """Call back when all that was appended so far is on the disk (None), or cannot be (the error)."""
        self._flusher.flush(callback)

    async def flush(self) -> None:
        """Wait until all that was appended so far is on the disk; raises the error if it cannot be."""
        await self.until(self.flush_then)

    async def until(self, start: Callable[[Flushed], None]) -> None:
        """Wait for what calls back when it is on the disk; raises the error if it cannot be."""
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

        def wake(error: OSError | None) -> None:
            if not done.done():
                done.set_result(error)

        start(wake)
        error = await done
        if error is not None:
            raise error

    def write_created(self, name_sync: Callable[[], None]) -> None:
        """For a new log: write its id and make its folder durable, in the background and before its records."""
        if self.topic_id is not None:
            self.adopt_topic_id(self.topic_id)
        self._flusher.queue(name_sync)
        self._flusher.write()

    def adopt_topic_id(self, topic_id: uuid.UUID) -> None:
        """The log is this topic's: written in the background where it was not known."""
        self.topic_id = topic_id
        self._flusher.queue_file(names.PARTITION_METADATA, write_partition_metadata(topic_id))
        self._flusher.write()

    def write_unwritten(self) -> None:
        """Small files that there was no room for are tried again."""
        self.producing.write_unwritten()
        if self._flusher.is_writing:
            self._flusher.write()

    # Errors and the end

    def note_error(self, error: OSError, wanted_bytes: int = 0) -> None:
        """A write went wrong, of so many bytes if they are many. What is held is not in doubt; others say what now."""
        if self._on_error is not None:
            self._on_error(self, error, wanted_bytes)

    def begin_offline(self, error: OSError) -> None:
        """A log that cannot be used from the start on, for a reason that is known already."""
        self._on_failure, on_failure = None, self._on_failure
        self.fail(error)
        self._on_failure = on_failure

    def fail(self, error: OSError) -> None:
        """Take no more appends and reads: what the disk holds is no longer known."""
        if self.failure is None:
            self.failure = error
            self.reshaping.stop_compaction()
            self._flusher.stop(error)
            if self._on_failure is not None:
                self._on_failure(self, error)

    def abandon(self) -> None:
        """The log is closed, or deleted: its files are no concern any more."""
        self._on_failure = self._on_error = None
        self.fail(self._closed())

    def close_files(self) -> None:
        self.segments.close()
        self.producing.aborted.close()

    def take_apart(self) -> None:
        """Of a log that is gone with its files: its parts, which know it, are freed with it, and not by the collector,
        for whom all that is there would have to stand still (`tune_gc`)."""
        self.on_start_moved = self.on_cut = None
        self.failure = self._closed()  # a new one: that of before knows who has met it
        self._flusher.forget()
        del self._flusher, self._removal, self._rolling, self._search, self.producing

    def _closed(self) -> OSError:
        return FileNotFoundError(errno.ENOENT, "the log is closed", self.folder)

    def when_quiet(self, call: Callable[[], object]) -> None:
        """Call when no thread writes into the log's folder, so that it can be renamed."""
        self.reshaping.when_not_compacting(lambda: self._flusher.when_quiet(call))

    async def close(self) -> None:
        """Cleanly: indexes complete, a snapshot at the end, everything on the disk. Appends end here."""
        if self.failure is not None or self._closing:
            return
        self._closing = True
        if self.epochs.changed_from >= self.next_offset:
            self.epochs.note_written()  # of an epoch without records the next leader makes another
        idle = self._flusher.is_idle and self.segments.active.is_sealed
        has_content = self.next_offset > self.log_start_offset or len(self.producing.state) > 0
        if self.next_offset > self._rolling.snapshot_offset and has_content:
            self._rolling.queue_snapshot()
            idle = False
        if not idle:
            if self.segments.active.size:
                self.segments.active.seal()
            self.producing.write_unwritten()
            self._flusher.whole = True
            self.failure = self._closed()
            try:
                await self.flush()
            finally:
                self.failure = self._flusher.error
        is_written = self._flusher.is_idle
        self.abandon()
        if not is_written:
            raise OSError(errno.ENOSPC, "there is no room for some of its files", self.folder)
