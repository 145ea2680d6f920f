"""What of reading a log may have to wait for the disk: cold and unchecked pages, look-ups by time, damaged indexes.

An index that leads a reader astray is rebuilt (`reindex`), and the search goes on. A batch whose checksum does not
match is never the answer: not to a fetch (`checked`), and not to a look-up. What little a fetch is the first to read
is checked on the loop, where it is cached.

A look-up by time that would hold the loop, for the records that it has to walk or the batches that it has to pass, is
made in a thread (`aside`), and the marks that it leaves are remembered (`marks`).
"""

from __future__ import annotations

import errno
import logging
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.aside import Aside
from moldau.log.disk_errors import DamagedLog
from moldau.log.index import Read, read_nowait, read_waiting
from moldau.log.lookup import Lookup
from moldau.log.marks import Marks
from moldau.log.reader import Reader, Slice, TimestampOffset, Unchecked, offset_at
from moldau.log.reindex import IndexMender
from moldau.log.scan import DamagedBatch, DamagedSegment, checked_batches
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.records.bounds import INLINE, Bounds, TooMuch, without_traces
from moldau.records.record import BadRecord
from moldau.runtime.ports import File, Runtime

logger = logging.getLogger(__name__)

CHECK_WINDOW_BYTES = 65_536
"""Checked between two reads: the loop gets its turn of the interpreter with each."""

Find = Callable[[Reader, int, Read, Lookup], TimestampOffset | None]
"""A search with a reader, from the log's start on, waiting for the disk or not, within bounds."""
Learned = list[tuple[int, Marks]]


def by_timestamp(timestamp: int) -> Find:
    return lambda reader, start, read, lookup: reader.offset_for_timestamp(timestamp, start, read, lookup)


def by_max_timestamp(reader: Reader, start: int, read: Read, lookup: Lookup) -> TimestampOffset | None:
    return reader.max_timestamp_offset(read, lookup)


class SearchedLog(Protocol):
    folder: str
    log_start_offset: int
    next_offset: int
    failure: OSError | None
    segments: Segments

    def fail(self, error: OSError) -> None: ...

    @property
    def config(self) -> TopicConfig: ...


class _Seen(NamedTuple):
    """What a check has found in a part of a segment."""

    base_offset: int
    start: int
    stop: int
    """The batches up to here are sound."""
    damage: str | None
    """What is wrong with the batch there, if something is."""
    batches: int
    """How many were looked at."""


class Search:
    __slots__ = ("_aside", "_log", "_mender", "_reader", "_runtime")

    def __init__(self, log: SearchedLog, reader: Reader, runtime: Runtime, aside: Aside) -> None:
        self._log = log
        self._aside = aside
        self._reader = reader
        self._mender = IndexMender(runtime)
        self._runtime = runtime

    # Fetches

    async def warm(self, offset: int, max_bytes: int, also: Callable[[], object] | None = None) -> None:
        """Bring what a read needs into the page cache: its index entries, its headers and its data, which is
        checked on the way; and what else a thread is to read."""
        log = self._log
        segment = log.segments.at(offset)
        with suppress(FileNotFoundError):  # its segment is gone: the next read will tell
            if await self._mender.mend(segment, log.folder, log.config.index_interval_bytes):
                self._reader.forget_positions()
        if not log.log_start_offset <= offset < log.next_offset:
            return
        reader, generation = self._reader.for_checking(), log.segments.generation
        try:
            seen = await self._runtime.tasks.in_thread(
                _bring_in, reader, offset, log.next_offset, max_bytes, also
            )
        except DamagedSegment as damage:  # or appends have confused the search: the next read will tell
            await self.mend(damage)
            return
        if seen is not None and generation == log.segments.generation:
            _note(log.segments.at(seen.base_offset), seen)

    def checked_now(self, unchecked: Unchecked) -> Slice:
        """As much of what a read has found as can be checked on the loop, and is sound: what is little, and cached.
        BlockingIOError where it is for a thread, which also tells what is damaged, and waits where nobody can tell
        what is cached."""
        segment, part = unchecked.segment, unchecked.part
        checks = self._aside.checks
        batches_max = checks.allowed(part.length)
        if not batches_max or part.file is None or not part.file.nowait:
            raise unchecked from None
        bounds = self._reader.bounds_of(segment.base_offset, self._log.next_offset)
        seen = _check(part.file, part.position, part.length, bounds, read_nowait, batches_max)
        checks.spend(part.length, seen.batches)
        _note(segment, seen)
        if seen.stop == part.position:
            raise unchecked from None
        if seen.stop == part.position + part.length:
            return part
        next_offset = offset_at(segment, seen.stop, read_nowait)
        return Slice(part.file, part.position, seen.stop - part.position, next_offset)

    # Look-ups by time

    def now(self, find: Find) -> TimestampOffset | None:
        """KafkaError (corrupt_message); BlockingIOError where a page is cold, an index must be rebuilt, or it takes too
        long for the loop."""
        try:
            return self._now(find)
        except TooMuch:
            raise BlockingIOError(errno.EAGAIN, "it is for a thread", self._log.folder) from None

    def _now(self, find: Find) -> TimestampOffset | None:
        log = self._log
        if log.failure is not None:
            raise log.failure.with_traceback(None)
        lookup = Lookup(self._aside.marks, self._reader.identity, INLINE)
        try:
            return find(self._reader, log.log_start_offset, read_nowait, lookup)
        except (DamagedSegment, BadRecord) as damage:
            raise self.explain(damage) from None

    async def waiting(self, find: Find) -> TimestampOffset | None:
        """The same, with the disk waited for, and large batches walked."""
        try:
            return self._now(find)
        except BlockingIOError:
            return await self._in_thread(find, is_large=False)
        except TooMuch:
            return await self._in_thread(find, is_large=True)

    async def _in_thread(self, find: Find, *, is_large: bool) -> TimestampOffset | None:
        """Again where it may have met a mixture of old and new segments, or an index was rebuilt."""
        log = self._log
        while True:
            generation, identity = log.segments.generation, self._reader.identity
            segments = log.segments.copy()
            work = partial(self._search, find, segments, log.log_start_offset, identity)
            try:
                if is_large:
                    found, learned = await self._aside.run(log.folder, work)
                else:  # the disk alone takes long, and nobody waits for another's large batches
                    done = await self._runtime.tasks.in_thread(work, INLINE)
                    if isinstance(done, TooMuch):
                        is_large = True
                        continue
                    found, learned = done
                if generation == log.segments.generation:
                    log.segments.learn_from(segments)
                    self._remember(identity, learned)
                    return found
            except (FileNotFoundError, struct.error):
                if log.failure is not None or generation == log.segments.generation:
                    raise
            except (DamagedSegment, BadRecord) as damage:
                if generation != log.segments.generation:
                    continue
                reason = self.explain(damage)
                if isinstance(reason, KafkaError):
                    raise reason from None
                await self._rebuild(damage)

    def _search(
        self, find: Find, segments: Segments, start: int, identity: object, bounds: Bounds
    ) -> tuple[TimestampOffset | None, Learned] | TooMuch:
        """Runs in a thread."""
        lookup = Lookup(self._aside.marks, identity, bounds)
        try:
            return find(Reader(segments), start, read_waiting, lookup), lookup.learned
        except TooMuch as much:
            return without_traces(much)
        except (DamagedSegment, BadRecord) as damage:
            raise without_traces(damage) from None

    def _remember(self, identity: object, learned: Learned) -> None:
        if identity is self._reader.identity:
            for base_offset, marks in learned:
                self._aside.marks.put(identity, base_offset, marks)

    # Damage

    def check_end(self, segment: Segment) -> None:
        """Before the first append after a start: nothing is written behind a segment that is not as it was left.
        OSError where it is not; an end that is cold is looked at meanwhile.
        """
        log, next_offset, size = self._log, self._log.next_offset, segment.size
        try:
            is_whole = segment.ends_by(next_offset, size, read_nowait)
        except BlockingIOError:
            work = self._check_end_later(segment, next_offset, size)
            self._runtime.tasks.spawn(work, name=f"check the end of {segment.path}")
            return
        if not is_whole:
            log.fail(_damaged(segment, next_offset))
        if log.failure is not None:
            raise log.failure.with_traceback(None)

    async def _check_end_later(self, segment: Segment, next_offset: int, size: int) -> None:
        with suppress(FileNotFoundError):  # its segment is gone
            if not await self._runtime.tasks.in_thread(segment.ends_by, next_offset, size, read_waiting):
                self._log.fail(_damaged(segment, next_offset))

    async def settled(self) -> None:
        """Wait until no index is being rebuilt."""
        await self._mender.settled()

    def explain(self, damage: DamagedSegment | BadRecord) -> Exception:
        """What a reader is told: to wait while an index may be at fault, else that the data is damaged."""
        if isinstance(damage, DamagedSegment) and not isinstance(damage, DamagedBatch):
            return self._mender.explain(self._log.segments.at(_segment_of(damage)), damage)
        logger.error("%s", damage)
        return KafkaError(ErrorCode.corrupt_message, str(damage))

    async def mend(self, damage: DamagedSegment) -> None:
        """Rebuild the indexes of the segment that the damage is in, if they may be at fault."""
        if not isinstance(self.explain(damage), KafkaError):
            await self._rebuild(damage)

    async def _rebuild(self, damage: Exception) -> None:
        assert isinstance(damage, DamagedSegment)
        segment = self._log.segments.at(_segment_of(damage))
        interval_bytes = self._log.config.index_interval_bytes
        with suppress(FileNotFoundError):  # its segment is gone
            if await self._mender.mend(segment, self._log.folder, interval_bytes):
                self._reader.forget_positions()


def _bring_in(
    reader: Reader, offset: int, next_offset: int, max_bytes: int, also: Callable[[], object] | None = None
) -> _Seen | None:
    """Runs in a thread. Appends and retention go on meanwhile, and may confuse the search."""
    with suppress(struct.error, FileNotFoundError):
        if also is not None:
            also()
        part = reader.read(offset, next_offset, max_bytes, next_offset, True, read_waiting)
        if part.file is not None:
            base_offset = _base_offset_of(part.file.path)
            bounds = reader.bounds_of(base_offset, next_offset)
            return _check(part.file, part.position, part.length, bounds, read_waiting)
    return None


def _note(segment: Segment, seen: _Seen) -> None:
    if seen.stop > seen.start:
        segment.checked.add(seen.start, seen.stop)
    if seen.damage is not None:
        segment.checked.add_bad(seen.stop, seen.damage)


def _check(
    file: File, start: int, length: int, bounds: tuple[int, int], read: Read, batches_max: int = sys.maxsize
) -> _Seen:
    """How many of the batches are sound: their checksums, and their offsets, which no checksum is of."""
    base_offset, end_offset = bounds
    position, next_offset, damage = start, base_offset, None
    last_position = start
    batches = 0
    try:
        for batch, _ in checked_batches(file, start, start + length, read, CHECK_WINDOW_BYTES):
            header = batch.header
            batches += 1
            if header.base_offset < next_offset or header.next_offset > end_offset:
                # Of two that contradict each other, none is known to be right.
                position = last_position if header.base_offset < next_offset else position
                raise DamagedSegment(file, position, f"offset {header.base_offset} does not belong there")
            last_position, position, next_offset = position, batch.end_position, header.next_offset
            if batches == batches_max:
                break
    except DamagedSegment as found:
        damage = found.what
    return _Seen(base_offset, start, position, damage, batches)


def _damaged(segment: Segment, next_offset: int) -> DamagedLog:
    what = f"{segment.path}{names.LOG} does not end before offset {next_offset}, as it was left"
    logger.error("%s: the log is offline, and the next start checks it", what)
    return DamagedLog(errno.EIO, what)


def _segment_of(damage: DamagedSegment) -> int:
    return _base_offset_of(damage.path)


def _base_offset_of(path: str) -> int:
    offset = names.offset_of(path.rpartition("/")[2], names.LOG)
    assert offset is not None, path
    return offset
